// What ranvier-report was asked for. Pure; any thread.
#pragma once

#include "apps/program/manual.hpp"

#include <string>
#include <vector>

namespace ranvier::apps {

struct ReportOptions {
  std::vector<std::string> runs;
  std::vector<std::string> names;  ///< of runs, as many
  std::string output = "report.html", csv, timeline, title;
  double price = 0;  ///< of a device and an hour; 0: not known
  bool overwrite = false;
  InfoRequest info;
};

/// Throws ErrorCode::usage.
[[nodiscard]] ReportOptions parse_report_options(int argc, const char* const* argv);
[[nodiscard]] Manual report_manual();

/// Writes what was asked for; returns what to say about it. Throws Error.
[[nodiscard]] std::string write_report(const ReportOptions& options);

}  // namespace ranvier::apps

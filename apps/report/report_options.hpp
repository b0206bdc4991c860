// Flags of ranvier-report. Pure functions, callable from any thread.
#pragma once

#include "apps/program/manual.hpp"

#include <string>
#include <vector>

namespace ranvier::apps {

struct ReportOptions {
  std::vector<std::string> runs;
  std::vector<std::string> names;  ///< names of `runs`
  std::string output = "report.html", csv, timeline, title;
  double price = 0;  ///< price per device-hour; 0: unknown
  bool overwrite = false;
  InfoRequest info;
};

/// Throws ErrorCode::usage.
[[nodiscard]] ReportOptions parse_report_options(int argc, const char* const* argv);
[[nodiscard]] Manual report_manual();

/// Writes the requested file; returns the line to print. Throws Error.
[[nodiscard]] std::string write_report(const ReportOptions& options);

}  // namespace ranvier::apps

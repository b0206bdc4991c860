// Builds one self-contained HTML file of runs: the live page with their data and a summary in it. Pure functions,
// callable from any thread.
#pragma once

#include "apps/report/run_file.hpp"

#include <string>
#include <vector>

namespace ranvier::apps {

// `price_per_hour`: price per device-hour; 0: unknown.

/// A row of the summary with one value per run; "–": no value.
struct SummaryRow {
  std::string name;
  std::vector<std::string> values;
};
[[nodiscard]] std::vector<SummaryRow> summary_rows(const std::vector<RunFile>& runs, double price_per_hour = 0);

/// Text of the HTML file.
[[nodiscard]] std::string report_page(const std::vector<RunFile>& runs, const std::string& title,
                                      double price_per_hour = 0);

/// One step of all ranks as a picture, one row per rank: text of an SVG file for light and dark background, with
/// microbatch numbers in wide spans. `title`: heading; empty: step, duration and grid. Throws ErrorCode::data
/// if the trace has no complete step.
[[nodiscard]] std::string timeline_file(const RunFile& run, const std::string& title);

}  // namespace ranvier::apps

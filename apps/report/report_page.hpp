// Runs as one page without anything outside of it: plots, a summary side by side, configurations. Pure; any thread.
#pragma once

#include "apps/report/run_file.hpp"

#include <string>
#include <vector>

namespace ranvier::apps {

// `price_per_hour`: of a device; 0: not known.

/// A row of the summary: what it is, and what each run has; "–" where one has none.
struct SummaryRow {
  std::string name;
  std::vector<std::string> values;
};
[[nodiscard]] std::vector<SummaryRow> summary_rows(const std::vector<RunFile>& runs, double price_per_hour = 0);

/// A whole HTML file.
[[nodiscard]] std::string report_page(const std::vector<RunFile>& runs, const std::string& title,
                                      double price_per_hour = 0);

}  // namespace ranvier::apps

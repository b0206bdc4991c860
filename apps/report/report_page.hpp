// Runs as one page without anything outside of it: plots, a summary side by side, configurations. Pure; any thread.
#pragma once

#include "apps/report/run_file.hpp"

#include <string>
#include <vector>

namespace ranvier::apps {

/// A row of the summary: what it is, and what each run has; "–" where one has none.
struct SummaryRow {
  std::string name;
  std::vector<std::string> values;
};
[[nodiscard]] std::vector<SummaryRow> summary_rows(const std::vector<RunFile>& runs);

/// A whole HTML file.
[[nodiscard]] std::string report_page(const std::vector<RunFile>& runs, const std::string& title);

}  // namespace ranvier::apps

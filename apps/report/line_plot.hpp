// Lines over steps, and ranks over time, as SVG for a page that has styles for them. Pure; any thread.
#pragma once

#include "apps/report/run_file.hpp"

#include <string>
#include <utility>
#include <vector>

namespace ranvier::apps {

struct PlotLine {
  std::string name;
  std::vector<std::pair<double, double>> points;  ///< by x
  std::vector<double> least, most;                ///< of each point, for a band behind the line; empty: none
  bool dots = false;                              ///< points of their own, as of evaluations
  int colour = 0;
};
/// An <svg> element; without lines that have points a sentence that says so. `scientific`: for small numbers.
[[nodiscard]] std::string line_plot(const std::string& title, const std::vector<PlotLine>& lines,
                                    bool scientific = false);

/// Ranks below each other over the last step of the trace; empty: it has none.
[[nodiscard]] std::string timeline(const TraceSummary& trace);

}  // namespace ranvier::apps

// Lines over steps as SVG, for a page that has styles for them. Pure; any thread.
#pragma once

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

/// Round numbers from `from` to `to`, `about` so many and at most 24.
[[nodiscard]] std::vector<double> ticks(double from, double to, int about);

}  // namespace ranvier::apps

// Draws curves over steps as SVG; the page supplies the styles. Pure functions, callable from any thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace ranvier::apps {

struct PlotLine {
  std::string name;
  std::vector<std::pair<double, double>> points;  ///< by x
  std::vector<double> least, most;                ///< band of each point; empty: no band
  bool dots = false;                              ///< single points (evaluations) instead of a line
  int colour = 0;
};
/// Returns a <figure> with an <svg>, or "No data". `scientific`: axis numbers such as 1.00e-04.
[[nodiscard]] std::string line_plot(const std::string& title, const std::vector<PlotLine>& lines,
                                    bool scientific = false);

/// Round numbers from `from` to `to`: about `about` of them, at most 24.
[[nodiscard]] std::vector<double> ticks(double from, double to, int about);

}  // namespace ranvier::apps

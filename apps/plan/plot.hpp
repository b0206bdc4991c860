// Bars as an SVG file, readable on light and dark pages: the text takes the page's colour, nothing fills the
// background. Pure; any thread.
#pragma once

#include <string>
#include <vector>

namespace ranvier::apps {

struct Bar {
  double value = 0;                ///< 0 or less: none, and the note says why
  std::string note;                ///< behind the bar: "12.3k tok/s"
  int series = 0;                  ///< which colour
  std::vector<double> parts = {};  ///< what the value is made of, in the colours from `series` on; none: one bar
};
struct BarGroup {
  std::string label;
  std::vector<Bar> bars;
};
struct BarPlot {
  std::string title;
  std::string about;                ///< a smaller line below the title
  std::vector<std::string> series;  ///< names for a legend; one has none
  std::vector<BarGroup> groups;
};

/// A whole file. Any text may be in it.
[[nodiscard]] std::string svg(const BarPlot& plot);

}  // namespace ranvier::apps

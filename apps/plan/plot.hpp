// Bar plot as an SVG file for light and dark pages, with a transparent background. Pure functions, callable from any
// thread.
#pragma once

#include <string>
#include <vector>

namespace ranvier::apps {

struct Bar {
  double value = 0;                ///< length; 0 or less: no bar, and the note gives the reason
  std::string note;                ///< text behind the bar: "12.3k tok/s"
  int series = 0;                  ///< index of the colour
  std::vector<double> parts = {};  ///< summands of the value, coloured starting at `series`; empty: one colour
};
struct BarGroup {
  std::string label;
  std::vector<Bar> bars;
};
struct BarPlot {
  std::string title;
  std::string about;                     ///< subtitle
  std::vector<std::string> series = {};  ///< legend names; a single series has no legend
  std::vector<BarGroup> groups = {};
};

/// Returns a complete file; escapes all texts.
[[nodiscard]] std::string svg(const BarPlot& plot);

}  // namespace ranvier::apps

#include "apps/plan/plot.hpp"

#include "apps/program/markup.hpp"
#include "apps/program/text_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace ranvier::apps {

namespace {

constexpr int width = 960, left = 400, right = 170, bar_height = 18, group_gap = 14, head = 76, letter = 7;
// Distinguishable with colour blindness, on white and on black.
constexpr std::array colours = {"#3b82c4", "#d98032", "#4b9e6a", "#a06cc0"};

const char* colour(int series) { return colours[static_cast<std::size_t>(series) % colours.size()]; }

std::string words(double x, double y, std::string_view attributes, const std::string& text) {
  return fmt::format(R"(<text x="{:.0f}" y="{:.0f}"{}>{}</text>)"
                     "\n",
                     x, y, attributes, markup_text(text));
}

}  // namespace

std::string svg(const BarPlot& plot) {
  double most = 0;
  int rows = 0;
  for (const BarGroup& group : plot.groups) {
    rows += static_cast<int>(group.bars.size());
    for (const Bar& bar : group.bars) most = std::max(most, bar.value);
  }
  const bool legend = plot.series.size() > 1;
  const int top = head + (legend ? 24 : 0);
  const int height = top + rows * bar_height + static_cast<int>(plot.groups.size()) * group_gap + 10;
  std::string text = fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {} {}" width="{}" height="{}" role="img" )"
      R"(aria-label="{}">)"
      "\n<style>text{{font:13px system-ui,sans-serif;fill:#1f2328}}.faint{{fill:#59636e}}"
      "line{{stroke:#59636e}}@media(prefers-color-scheme:dark){{text{{fill:#e6edf3}}.faint{{fill:#9198a1}}"
      "line{{stroke:#9198a1}}}}</style>\n",
      width, height, width, height, markup_text(plot.title));
  text += words(16, 28, R"( style="font-size:17px;font-weight:600")", plot.title);
  text += words(16, 52, R"( class="faint")", plot.about);
  double key = 16;
  for (std::size_t s = 0; legend && s < plot.series.size(); ++s) {
    text += fmt::format(R"(<rect x="{:.0f}" y="{}" width="12" height="12" rx="2" fill="{}"/>)"
                        "\n",
                        key, head - 10, colour(static_cast<int>(s)));
    text += words(key + 18, head + 1, "", plot.series[s]);
    key += 40 + letter * static_cast<double>(plot.series[s].size());
  }
  double y = top;
  const double scale = most > 0 ? (width - left - right) / most : 0;
  for (const BarGroup& group : plot.groups) {
    const double middle = y + bar_height * static_cast<double>(group.bars.size()) / 2 + 4;
    text += words(left - 10, middle, R"( text-anchor="end")", shortened(group.label, 59));
    for (const Bar& bar : group.bars) {
      double x = left;
      const auto draw = [&](double value, int series) {
        const double length = std::max(0.0, value) * scale;
        text += fmt::format(R"(<rect x="{:.1f}" y="{:.0f}" width="{:.1f}" height="{}" rx="2" fill="{}"/>)"
                            "\n",
                            x, y, length, bar_height - 3, colour(series));
        x += length;
      };
      if (bar.parts.empty()) draw(bar.value, bar.series);
      for (std::size_t p = 0; p < bar.parts.size(); ++p) draw(bar.parts[p], bar.series + static_cast<int>(p));
      text += words(x + 6, y + bar_height - 6, R"( class="faint")", bar.note);
      y += bar_height;
    }
    y += group_gap;
  }
  text += fmt::format(R"(<line x1="{0}" y1="{1}" x2="{0}" y2="{2:.0f}"/>)"
                      "\n</svg>\n",
                      left, top - 4, y - group_gap + 2);
  return text;
}

}  // namespace ranvier::apps

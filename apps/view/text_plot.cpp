#include "apps/view/series.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace ranvier::apps {
namespace {

constexpr std::int64_t fewest_steps = 8;

/// Bits of a braille character (U+2800) by column and row of the dot.
std::string braille(unsigned dots) {
  const unsigned code = 0x2800 + dots;
  return {static_cast<char>(0xe0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3f)),
          static_cast<char>(0x80 | (code & 0x3f))};
}

unsigned dot(std::size_t column, std::size_t row) {
  constexpr unsigned bits[2][4] = {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}};
  return bits[column][row];
}

}  // namespace

std::string text_plot(const Series& series, Metric metric, std::size_t columns, std::size_t lines) {
  const std::size_t wide = 2 * columns, tall = 4 * lines;
  std::vector<StepBin> points = series.between(0, std::numeric_limits<std::int64_t>::max(), wide);
  std::erase_if(points, [metric](const StepBin& point) { return point[metric].count == 0; });
  if (points.empty() || points.back().last - points.front().first + 1 < fewest_steps) return {};
  double low = points[0][metric].mean, high = low;
  for (const StepBin& point : points) {
    low = std::min(low, point[metric].mean);
    high = std::max(high, point[metric].mean);
  }
  if (!(high > low)) return {};
  const auto first = static_cast<double>(points.front().last), last = static_cast<double>(points.back().last);
  std::vector<unsigned> dots(columns * lines);
  const auto row_of = [&](double value) {
    return static_cast<std::size_t>(std::lround((high - value) / (high - low) * static_cast<double>(tall - 1)));
  };
  std::size_t before = 0;
  for (std::size_t x = 0; x < wide; ++x) {
    const double step = first + (last - first) * static_cast<double>(x) / static_cast<double>(wide - 1);
    const auto after = std::partition_point(points.begin(), points.end() - 1, [step](const StepBin& point) {
      return static_cast<double>(point.last) < step;
    });
    double value = (*after)[metric].mean;
    if (after != points.begin()) {  // linear interpolation between two points
      const StepBin& earlier = *(after - 1);
      const double gap = static_cast<double>(after->last - earlier.last);
      const double part = std::clamp((step - static_cast<double>(earlier.last)) / gap, 0.0, 1.0);
      value = earlier[metric].mean + part * (value - earlier[metric].mean);
    }
    const std::size_t row = row_of(value);
    if (x == 0) before = row;
    // Fills gaps if the curve is steep.
    const std::size_t top = std::min(row, before < row ? before + 1 : before),
                      bottom = std::max(row, before > row ? before - 1 : row);
    for (std::size_t y = std::min(top, row); y <= bottom; ++y) dots[y / 4 * columns + x / 2] |= dot(x % 2, y % 4);
    before = row;
  }
  std::string text;
  for (std::size_t line = 0; line < lines; ++line) {
    const std::string scale = line == 0           ? fmt::format("{:.4g}", high)
                              : line + 1 == lines ? fmt::format("{:.4g}", low)
                                                  : "";
    text += fmt::format("{:>9} ", scale);
    for (std::size_t column = 0; column < columns; ++column) text += braille(dots[line * columns + column]);
    text += '\n';
  }
  const std::string end = fmt::format("step {}", points.back().last);
  return text +
         fmt::format("{:10}{:<{}}{}\n", "", points.front().last, columns - std::min(columns, end.size()), end);
}

}  // namespace ranvier::apps

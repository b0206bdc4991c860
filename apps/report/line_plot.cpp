#include "apps/report/line_plot.hpp"

#include "apps/program/markup.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace ranvier::apps {
namespace {

constexpr double width = 640;
constexpr double height = 260;
constexpr double left_margin = 62;
constexpr double right_margin = 12;
constexpr double top_margin = 10;
constexpr double bottom_margin = 26;

std::string short_number(double value) {
  for (const auto& [unit, name] : {std::pair{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}})
    if (std::abs(value) >= unit) return fmt::format("{:.4g}{}", value / unit, name);
  return fmt::format("{:.4g}", value);
}

}  // namespace

std::vector<double> ticks(double from, double to, int about) {
  const double rough = (to - from) / about, unit = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * unit;
  for (const double factor : {5.0, 2.0, 1.0})
    if (factor * unit >= rough) step = factor * unit;
  std::vector<double> all;
  for (double x = std::ceil(from / step) * step; x <= to + 1e-9 * step && all.size() < 24; x += step)
    all.push_back(std::abs(x) < 1e-9 * step ? 0 : x);
  return all;
}

std::string line_plot(const std::string& title, const std::vector<PlotLine>& lines, bool scientific) {
  std::vector<double> ys;
  double x0 = 0, x1 = 1;
  for (const PlotLine& line : lines) {
    for (const auto& [x, y] : line.points) {
      if (!std::isfinite(y)) continue;
      x1 = std::max(x1, x);
      ys.push_back(y);
    }
  }
  std::string text = fmt::format("<figure><figcaption>{}</figcaption>\n", markup_text(title));
  if (ys.empty()) return text + "<p>No data.</p></figure>\n";
  std::sort(ys.begin(), ys.end());
  double low = ys.front(), high = ys.back();
  // Clips the range so that a few spikes do not flatten the curve.
  if (const double usual = ys[(ys.size() - 1) * 99 / 100]; ys.size() > 50 && high - low > 8 * (usual - low))
    high = usual + 0.2 * (usual - low);
  if (high - low < 1e-12 * std::max(1.0, std::abs(high))) {
    const double more = high == 0 ? 1 : std::abs(high) * 0.05;
    low -= more;
    high += more;
  }
  const double pad = 0.05 * (high - low);
  low -= pad;
  high += pad;
  const auto px = [&](double x) {
    return left_margin + (x - x0) / (x1 - x0) * (width - left_margin - right_margin);
  };
  const auto py = [&](double y) {
    return std::clamp(top_margin + (high - y) / (high - low) * (height - top_margin - bottom_margin), top_margin,
                      height - bottom_margin);
  };
  const auto append = std::back_inserter(text);
  fmt::format_to(append, "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n", width, height,
                 markup_text(title));
  for (const double t : ticks(low, high, 4)) {
    fmt::format_to(append,
                   R"(<line class="grid" x1="{0}" x2="{1}" y1="{2:.1f}" y2="{2:.1f}"/><text x="{3}" y="{4:.1f}")"
                   R"( text-anchor="end">{5}</text>)"
                   "\n",
                   left_margin, width - right_margin, py(t), left_margin - 6, py(t) + 4,
                   scientific ? fmt::format("{:.2e}", t) : short_number(t));
  }
  for (const double t : ticks(x0, x1, 6))
    fmt::format_to(append,
                   R"(<text x="{:.1f}" y="{}" text-anchor="middle">{}</text>)"
                   "\n",
                   px(t), height - 8, short_number(t));
  for (const PlotLine& line : lines) {
    const std::string colour = fmt::format("var(--run{})", line.colour % 6);
    if (line.dots) {
      for (const auto& [x, y] : line.points)
        if (std::isfinite(y))
          fmt::format_to(
              append,
              R"(<circle cx="{:.1f}" cy="{:.1f}" r="3" fill="{}"><title>{}: {:.0f}: {:.5g}</title></circle>)"
              "\n",
              px(x), py(y), colour, markup_text(line.name), x, y);
      continue;
    }
    std::string path, up, down;
    char pen = 'M';
    for (std::size_t i = 0; i < line.points.size(); ++i) {
      const auto& [x, y] = line.points[i];
      if (!std::isfinite(y)) {
        pen = 'M';
        continue;
      }
      path += fmt::format("{}{:.1f} {:.1f}", pen, px(x), py(y));
      pen = 'L';
      if (line.least.empty()) continue;
      up += fmt::format("{}{:.1f} {:.1f}", up.empty() ? 'M' : 'L', px(x), py(line.most[i]));
      down = fmt::format("L{:.1f} {:.1f}", px(x), py(line.least[i])) + down;
    }
    if (!up.empty()) fmt::format_to(append, "<path d=\"{}{}Z\" fill=\"{}\" opacity=\"0.18\"/>\n", up, down, colour);
    fmt::format_to(append, "<path class=\"line\" d=\"{}\" stroke=\"{}\"><title>{}</title></path>\n", path, colour,
                   markup_text(line.name));
  }
  return text + "</svg></figure>\n";
}

}  // namespace ranvier::apps

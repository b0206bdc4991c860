#include "apps/report/timeline.hpp"

#include "apps/program/markup.hpp"
#include "apps/report/line_plot.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/grid.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <optional>
#include <string_view>

namespace ranvier::apps {
namespace {

constexpr std::array keys{"forward", "backward", "weights", "optimizer", "wait", "send", "gather", "reduce"};
constexpr std::array drawn{"wait",    "send",     "gather",  "reduce",
                           "forward", "backward", "weights", "optimizer"};  // drawing order
constexpr std::size_t max_named = 32;                                       // up to this number ranks have labels

/// Pixels.
struct Frame {
  double wide = 0, label = 0, top = 0, row = 0;
  bool says_microbatches = false;
  double step_ms = 0;

  [[nodiscard]] double x(double ms) const { return label + ms / std::max(step_ms, 1e-9) * (wide - label - 4); }
};

/// Communication is a strip in the lower third, since it overlaps with compute.
bool is_strip(std::string_view kind) { return kind == "send" || kind == "gather" || kind == "reduce"; }

std::optional<int> flag_of(const RunFile& run, std::string_view name) {
  const auto* value = run.history.configuration().if_contains(name);
  if (value == nullptr || !value->is_string()) return std::nullopt;
  const std::string_view text = value->get_string();
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || number < 1) return std::nullopt;
  return number;
}

/// Grid of the configuration; none: it is missing or has another number of ranks than the trace.
std::optional<runtime::Grid> grid_of(const RunFile& run) {
  const auto stages = flag_of(run, "g-inter"), rows = flag_of(run, "g-data");
  const int ranks = static_cast<int>(run.trace.ranks.size());
  if (!stages || !rows || *stages > ranks || *rows > ranks || *stages * *rows != ranks) return std::nullopt;
  return runtime::Grid({.g_inter = *stages, .g_data = *rows}, ranks);
}

std::string name_of(int rank, const std::optional<runtime::Grid>& grid) {
  if (!grid || rank >= grid->shape().ranks()) return fmt::format("rank {}", rank);
  const auto [stage, row] = grid->position(rank);
  return grid->shape().g_data > 1 ? fmt::format("stage {}, row {}", stage, row) : fmt::format("stage {}", stage);
}

/// Rows and the axis below them.
std::string drawing(const RunFile& run, const Frame& frame) {
  const TraceSummary& trace = run.trace;
  const auto grid = grid_of(run);
  std::string text;
  const auto append = std::back_inserter(text);
  const double tallest = frame.row > 4 ? frame.row - 2 : frame.row;
  double y = frame.top;
  for (const auto& [rank, spans] : trace.ranks) {
    if (trace.ranks.size() <= max_named)
      fmt::format_to(append, "<text x=\"0\" y=\"{:.1f}\">{}</text>\n", y + tallest / 2 + 4, name_of(rank, grid));
    for (const char* kind : drawn) {
      const double tall = is_strip(kind) && frame.row > 6 ? tallest / 3 : tallest;
      for (const TraceSummary::Span& span : spans) {
        if (span.kind != kind) continue;
        const double x = frame.x(span.begin_ms);
        const double wide = std::max(0.5, frame.x(span.begin_ms + span.length_ms) - x);
        fmt::format_to(append, R"(<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>)", kind,
                       x, y + tallest - tall, wide, tall);
        text += '\n';
        const bool computes = span.kind == "forward" || span.kind == "backward" || span.kind == "weights";
        if (!frame.says_microbatches || !computes || span.index < 0) continue;
        if (const std::string number = fmt::format("{}", span.index);
            wide > 8 * static_cast<double>(number.size()) + 2)
          fmt::format_to(append, "<text class=\"in\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", x + wide / 2,
                         y + tallest / 2 + 4, number);
      }
    }
    y += frame.row;
  }
  for (const double t : ticks(0, trace.step_ms, 10))
    fmt::format_to(append, "<text x=\"{:.1f}\" y=\"{:.1f}\">{:.4g} ms</text>\n",
                   std::min(frame.x(t), frame.wide - 50), y + 16, t);
  return text;
}

bool has_kind(const TraceSummary& trace, std::string_view kind) {
  return std::any_of(trace.ranks.begin(), trace.ranks.end(), [&](const auto& rank) {
    return std::any_of(rank.second.begin(), rank.second.end(),
                       [&](const TraceSummary::Span& span) { return span.kind == kind; });
  });
}

std::string title_of(const RunFile& run) {
  std::string title = fmt::format("Step {}, {:.1f} ms", run.trace.step, run.trace.step_ms);
  const auto grid = grid_of(run);
  if (!grid) return title;
  const auto [stages, rows] = grid->shape();
  return title + fmt::format(": {} stage{} × {} row{}", stages, stages == 1 ? "" : "s", rows, rows == 1 ? "" : "s");
}

constexpr std::string_view file_style =
    "text{font:12px system-ui,sans-serif;fill:#59636e}.title{font-size:15px;font-weight:600;fill:#1f2328}"
    ".in{fill:#fff;text-anchor:middle;font-size:11px}"
    ".forward{fill:#3b82c4}.backward{fill:#7c5cc4}.weights{fill:#a0689b}.optimizer{fill:#2f9e6e}.wait{fill:#d9d9d4}"
    "rect{stroke:#fff;stroke-opacity:.3;stroke-width:.6}.send{fill:#8b949e}.gather{fill:#d99a2b}.reduce{fill:#"
    "c2571a}"
    "@media(prefers-color-scheme:dark){text{fill:#9198a1}.title{fill:#e6edf3}.in{fill:#fff}.wait{fill:#3a4047}}";

}  // namespace

std::string timeline(const RunFile& run) {
  const TraceSummary& trace = run.trace;
  if (trace.step == 0 || trace.ranks.empty()) return {};
  const auto ranks = static_cast<double>(trace.ranks.size());
  const Frame frame{.wide = 1300,
                    .label = 92,
                    .row = trace.ranks.size() <= max_named ? 20 : std::max(3.0, 640.0 / ranks),
                    .step_ms = trace.step_ms};
  std::string text = fmt::format(
      "<figure><figcaption>Step {} of all ranks, {:.1f} ms</figcaption>\n<svg viewBox=\"0 0 {} {:.0f}\" "
      "role=\"img\" aria-label=\"timeline\">\n",
      trace.step, trace.step_ms, frame.wide, frame.row * ranks + 22);
  text += drawing(run, frame) + "</svg>\n<p class=\"keys\">";
  for (const char* kind : keys) text += fmt::format("<i class=\"{0}\"></i>{0} ", kind);
  return text + "</p></figure>\n";
}

std::string timeline_file(const RunFile& run, const std::string& title) {
  const TraceSummary& trace = run.trace;
  if (trace.step == 0 || trace.ranks.empty())
    fail(ErrorCode::data, "trace has no complete step: {}; use METRICS,TRACE with a --trace file", run.name);
  const auto ranks = static_cast<double>(trace.ranks.size());
  const Frame frame{.wide = 960,
                    .label = 92,
                    .top = 54,
                    .row = trace.ranks.size() <= max_named ? 32 : std::max(3.0, 640.0 / ranks),
                    .says_microbatches = true,
                    .step_ms = trace.step_ms};
  const std::string heading = title.empty() ? title_of(run) : title;
  std::string text = fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0:.0f} {1:.0f}" width="{0:.0f}" height="{1:.0f}" )"
      "role=\"img\" aria-label=\"{2}\">\n<style>{3}</style>\n<text class=\"title\" x=\"0\" y=\"17\">{2}</text>\n",
      frame.wide, frame.top + frame.row * ranks + 22, markup_text(heading), file_style);
  double x = 0;
  for (const char* kind : keys) {
    if (!has_kind(trace, kind)) continue;
    text += fmt::format(R"(<rect class="{0}" x="{1:.0f}" y="30" width="11" height="11" rx="2"/>)"
                        "<text x=\"{2:.0f}\" y=\"40\">{0}</text>\n",
                        kind, x, x + 16);
    x += 34 + 7 * static_cast<double>(std::string_view(kind).size());
  }
  return text + drawing(run, frame) + "</svg>\n";
}

}  // namespace ranvier::apps

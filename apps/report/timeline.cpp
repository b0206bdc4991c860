#include "apps/report/report_page.hpp"

#include "apps/program/markup.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/grid.hpp"
#include "runtime/trace/trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <optional>
#include <string_view>

namespace ranvier::apps {
namespace {

using runtime::SpanKind;

constexpr std::size_t max_named = 32;  // up to this number ranks have labels

// Pixels.
constexpr double width = 960, label_width = 92, top = 54;

constexpr std::string_view style =
    "text{font:12px system-ui,sans-serif;fill:#59636e}.title{font-size:15px;font-weight:600;fill:#1f2328}"
    ".in{fill:#fff;text-anchor:middle;font-size:11px}"
    ".forward{fill:#3b82c4}.backward{fill:#7c5cc4}.weights{fill:#a0689b}.optimizer{fill:#2f9e6e}.wait{fill:#d9d9d4}"
    "rect{stroke:#fff;stroke-opacity:.3;stroke-width:.6}.send{fill:#8b949e}.gather{fill:#d99a2b}.reduce{fill:#"
    "c2571a}"
    "@media(prefers-color-scheme:dark){text{fill:#9198a1}.title{fill:#e6edf3}.in{fill:#fff}.wait{fill:#3a4047}}";

/// Grid of the configuration; none: it is missing or has another number of ranks than the trace.
std::optional<runtime::Grid> traced_grid(const RunFile& run) {
  const auto shape = grid_of(run);
  const auto ranks = static_cast<int>(run.ranks.ranks.size());
  return shape && shape->ranks() == ranks ? std::optional(runtime::Grid(*shape, ranks)) : std::nullopt;
}

std::string name_of(int rank, const std::optional<runtime::Grid>& grid) {
  if (!grid) return fmt::format("rank {}", rank);
  const auto [stage, row] = grid->position(rank);
  return grid->shape().g_data > 1 ? fmt::format("stage {}, row {}", stage, row) : fmt::format("stage {}", stage);
}

std::string default_title(const RunFile& run) {
  std::string title = fmt::format("Step {}, {:.1f} ms", run.ranks.step, run.ranks.step_ms);
  const auto grid = traced_grid(run);
  if (!grid) return title;
  const auto [stages, rows] = grid->shape();
  return title + fmt::format(": {} stage{} × {} row{}", stages, stages == 1 ? "" : "s", rows, rows == 1 ? "" : "s");
}

/// 1, 2 or 5 times a power of ten, so that a duration has at most ten of them.
double tick_of(double duration) {
  const double unit = std::pow(10.0, std::floor(std::log10(duration / 10)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * unit * 10 >= duration) return factor * unit;
  return 10 * unit;
}

}  // namespace

std::string timeline_file(const RunFile& run, const std::string& title) {
  using enum SpanKind;
  constexpr std::array drawn{wait, send, gather, reduce, forward, backward, weights, optimizer};
  const RankSnapshot& trace = run.ranks;
  if (trace.step == 0 || !(trace.step_ms > 0))
    fail(ErrorCode::data, "trace has no complete step: {}; use METRICS,TRACE with a --trace file", run.name);
  const std::size_t ranks = trace.ranks.size();
  const double row = ranks <= max_named ? 32 : std::max(3.0, 640.0 / static_cast<double>(ranks));
  const double tall = row > 4 ? row - 2 : row;
  const auto x_of = [&](double ms) { return label_width + ms / trace.step_ms * (width - label_width - 4); };
  std::string text;
  const auto append = std::back_inserter(text);
  const std::string heading = markup_text(title.empty() ? default_title(run) : title);
  fmt::format_to(append,
                 R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0:.0f} {1:.0f}" width="{0:.0f}" )"
                 R"(height="{1:.0f}" role="img" aria-label="{2}">)"
                 "\n<style>{3}</style>\n<text class=\"title\" x=\"0\" y=\"17\">{2}</text>\n",
                 width, top + row * static_cast<double>(ranks) + 22, heading, style);
  double x = 0;
  for (const SpanKind kind : {forward, backward, weights, optimizer, wait, send, gather, reduce}) {
    const auto has_kind = [&](const RankSnapshot::Rank& rank) {
      return std::ranges::find(rank.spans, static_cast<std::uint8_t>(kind), &SummarySpan::kind) != rank.spans.end();
    };
    if (std::ranges::none_of(trace.ranks, has_kind)) continue;
    const std::string_view name = to_string(kind);
    fmt::format_to(append,
                   R"(<rect class="{0}" x="{1:.0f}" y="30" width="11" height="11" rx="2"/>)"
                   "<text x=\"{2:.0f}\" y=\"40\">{0}</text>\n",
                   name, x, x + 16);
    x += 34 + 7 * static_cast<double>(name.size());
  }
  const auto grid = traced_grid(run);
  double y = top;
  for (std::size_t rank = 0; rank < ranks; ++rank, y += row) {
    if (ranks <= max_named)
      fmt::format_to(append, "<text x=\"0\" y=\"{:.1f}\">{}</text>\n", y + tall / 2 + 4,
                     name_of(static_cast<int>(rank), grid));
    for (const SpanKind kind : drawn) {
      // Communication is a strip in the lower third, since it overlaps with compute.
      const bool is_strip = kind == send || kind == gather || kind == reduce;
      const double height = is_strip && row > 6 ? tall / 3 : tall;
      for (const SummarySpan& span : trace.ranks[rank].spans) {
        if (static_cast<SpanKind>(span.kind) != kind) continue;
        const double begin = x_of(span.begin_ms),
                     wide = std::max(0.5, x_of(span.begin_ms + span.length_ms) - begin);
        fmt::format_to(append, R"(<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>)",
                       to_string(kind), begin, y + tall - height, wide, height);
        text += '\n';
        const std::string number = fmt::format("{}", span.index);  // microbatch
        if ((kind == forward || kind == backward || kind == weights) && span.index >= 0 &&
            wide > 8 * static_cast<double>(number.size()) + 2)
          fmt::format_to(append, "<text class=\"in\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", begin + wide / 2,
                         y + tall / 2 + 4, number);
      }
    }
  }
  const double tick = tick_of(trace.step_ms);
  for (int i = 0; i * tick <= trace.step_ms; ++i)
    fmt::format_to(append, "<text x=\"{:.1f}\" y=\"{:.1f}\">{:.4g} ms</text>\n",
                   std::min(x_of(i * tick), width - 50), y + 16, i * tick);
  return text + "</svg>\n";
}

}  // namespace ranvier::apps

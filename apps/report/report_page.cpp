#include "apps/report/report_page.hpp"

#include "actors/watch/reporter.hpp"
#include "apps/program/markup.hpp"
#include "apps/report/line_plot.hpp"
#include "apps/report/timeline.hpp"
#include "runtime/device/arena.hpp"

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <string_view>

namespace ranvier::apps {
namespace {

namespace json = boost::json;

constexpr std::size_t max_points = 1000;
constexpr const char* none = "–";

constexpr std::string_view style = R"(
:root { color-scheme: light dark; --bg: #fff; --ink: #1d2126; --soft: #667; --line: #ddd; --grid: #e9e9e6;
  --run0: #1660b0;
  --run1: #c2410c; --run2: #177a3d; --run3: #7c3aed; --run4: #b8860b; --run5: #0e7490; --wait: #d9d9d4; }
@media (prefers-color-scheme: dark) { :root { --bg: #14171a; --ink: #e6e8ea; --soft: #98a1aa; --line: #343a40;
  --grid: #2a2f35; --run0: #6db3f2; --run1: #fb923c; --run2: #4ade80; --run3: #c4a3ff; --run4: #eac54f; --run5: #5fd3e6;
  --wait: #3a4047; } }
body { margin: 0 auto; max-width: 1340px; padding: 14px; background: var(--bg); color: var(--ink);
  font: 14px/1.5 system-ui, sans-serif; }
h1 { font-size: 20px; } h2 { font-size: 16px; margin: 26px 0 8px; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 520px), 1fr)); gap: 8px 20px; }
figure { margin: 0; overflow-x: auto; } figcaption { color: var(--soft); font-weight: 600; font-size: 13px; }
svg { width: 100%; height: auto; } svg text { fill: var(--soft); font: 11px system-ui, sans-serif; }
.grid { stroke: var(--grid); } .line { fill: none; stroke-width: 1.5; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 2px 14px 2px 0; border-bottom: 1px solid var(--line); vertical-align: top;
  overflow-wrap: anywhere; } th { color: var(--soft); font-weight: 500; } td.differs { font-weight: 600; }
.keys i, th i { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin: 0 4px 0 10px; }
.forward { fill: #3b82c4; background: #3b82c4; } .backward { fill: #7c5cc4; background: #7c5cc4; }
.weights { fill: #b07cc6; background: #b07cc6; }
.optimizer { fill: #2f9e6e; background: #2f9e6e; } .wait { fill: var(--wait); background: var(--wait); }
.send { fill: #9aa3ad; background: #9aa3ad; } .gather { fill: #d99a2b; background: #d99a2b; }
.reduce { fill: #c2571a; background: #c2571a; } pre { white-space: pre-wrap; overflow-wrap: anywhere; }
@media (max-width: 600px) { body { padding: 8px; overflow-wrap: anywhere; } table { font-size: 11px; }
  th, td { padding-right: 6px; } }
)";

std::string number(double value, const char* unit = "") {
  return std::isfinite(value) ? fmt::format("{:.5g}{}", value, unit) : none;
}

std::string percent(double share) { return std::isfinite(share) ? fmt::format("{:.1f}%", 100 * share) : none; }

std::vector<StepBin> points_of(const RunFile& run, std::size_t most = max_points) {
  return run.history.series().between(0, std::numeric_limits<std::int64_t>::max(), most);
}

/// Mean over all steps; NaN: no step has a value.
double mean_of(const RunFile& run, Metric metric) {
  const auto all = points_of(run, 1);
  return all.empty() || all[0][metric].count == 0 ? std::numeric_limits<double>::quiet_NaN() : all[0][metric].mean;
}

/// Duration of all steps, repeated ones included, and of checkpoint stalls.
double seconds_of(const History::Totals& totals) { return totals.seconds + totals.checkpoint_waits; }

/// Mean over the last 1 % of all steps, which is less noisy than one batch.
double last_loss(const RunFile& run) {
  const std::int64_t last = run.history.series().last_step();
  const auto end = run.history.series().between(last - last / 100, last, 1);
  return end.empty() || end[0][Metric::loss].count == 0 ? std::numeric_limits<double>::quiet_NaN()
                                                        : end[0][Metric::loss].mean;
}

using Evaluated = std::optional<double> History::Evaluation::*;

double best_of(const RunFile& run, Evaluated which, bool (*better)(double, double)) {
  double best = std::numeric_limits<double>::quiet_NaN();
  for (const auto& each : run.history.evaluations())
    if (const auto& value = each.*which; value && (std::isnan(best) || better(*value, best))) best = *value;
  return best;
}

double last_of(const RunFile& run, Evaluated which) {
  const auto& all = run.history.evaluations();
  const auto found =
      std::find_if(all.rbegin(), all.rend(), [&](const auto& each) { return (each.*which).has_value(); });
  return found == all.rend() ? std::numeric_limits<double>::quiet_NaN() : *((*found).*which);
}

/// Positive value of a flag; none: not in the metrics.
std::optional<double> flag_of(const RunFile& run, std::string_view name) {
  const json::value* const value = run.history.configuration().if_contains(name);
  if (value == nullptr || !value->is_string()) return std::nullopt;
  const double number = std::atof(value->get_string().c_str());
  return number > 0 ? std::optional(number) : std::nullopt;
}

/// Hours summed over all devices; NaN: the metrics lack the grid.
double device_hours(const RunFile& run) {
  const auto stages = flag_of(run, "g-inter"), rows = flag_of(run, "g-data");
  if (!stages || !rows) return std::numeric_limits<double>::quiet_NaN();
  return *stages * *rows * seconds_of(run.history.totals()) / 3600;
}

double share_of(const RunFile& run, const std::string& kind) {
  if (run.trace.shares.empty()) return std::numeric_limits<double>::quiet_NaN();
  double sum = 0;
  for (const auto& [rank, kinds] : run.trace.shares)
    if (const auto found = kinds.find(kind); found != kinds.end()) sum += found->second;
  return sum / static_cast<double>(run.trace.shares.size());
}

/// "predicted / measured (difference)" of one value of --profile.
std::string predicted(const RunFile& run, const char* name, const std::function<std::string(double)>& text) {
  const auto value = [&](const char* which) {
    const json::value* found = run.history.prediction().if_contains(which);
    return found != nullptr && found->is_object() ? number_of(found->get_object(), name)
                                                  : std::numeric_limits<double>::quiet_NaN();
  };
  const double said = value("predicted"), was = value("measured");
  if (!std::isfinite(said) || !std::isfinite(was)) return none;
  return fmt::format("{} / {}{}", text(said), text(was),
                     was > 0 ? fmt::format(" ({:+.1f}%)", 100 * (said / was - 1)) : "");
}

std::string seconds_text(double seconds) {
  return std::isfinite(seconds) ? fmt::format("{:.1f} ms", 1e3 * seconds) : none;
}

std::string rounded_bytes(double bytes) {
  constexpr double largest = 1e18;  // a file may have any number, std::size_t not
  return runtime::format_bytes(static_cast<std::size_t>(std::clamp(bytes, 0.0, largest)));
}

PlotLine line_of(const RunFile& run, Metric metric, int colour, bool band) {
  PlotLine line{.name = run.name, .points = {}, .least = {}, .most = {}, .colour = colour};
  for (const StepBin& point : points_of(run)) {
    const BinnedValue& value = point[metric];
    line.points.emplace_back(static_cast<double>(point.last),
                             value.count > 0 ? value.mean : std::numeric_limits<double>::quiet_NaN());
    if (!band) continue;
    line.least.push_back(value.least);
    line.most.push_back(value.most);
  }
  return line;
}

std::string plots(const std::vector<RunFile>& runs) {
  const auto of = [&](const std::string& title, Metric metric, bool scientific = false) {
    std::vector<PlotLine> lines;
    for (std::size_t r = 0; r < runs.size(); ++r)
      lines.push_back(line_of(runs[r], metric, static_cast<int>(r), runs.size() == 1));
    if (metric == Metric::loss) {
      for (std::size_t r = 0; r < runs.size(); ++r) {
        PlotLine dots{.name = runs[r].name + ", validation",
                      .points = {},
                      .least = {},
                      .most = {},
                      .dots = true,
                      .colour = runs.size() == 1 ? 1 : static_cast<int>(r)};
        for (const auto& each : runs[r].history.evaluations())
          if (each.loss) dots.points.emplace_back(static_cast<double>(each.step), *each.loss);
        lines.push_back(std::move(dots));
      }
    }
    return line_plot(title, lines, scientific);
  };
  const bool any_mfu = std::any_of(runs.begin(), runs.end(),
                                   [](const RunFile& run) { return std::isfinite(mean_of(run, Metric::mfu)); });
  return "<div class=\"plots\">\n" + of("Loss (points: validation)", Metric::loss) +
         of("Gradient norm", Metric::norm) + of("Throughput per second", Metric::throughput) +
         of("Step time in seconds", Metric::seconds) + of("Learning rate", Metric::learning_rate, true) +
         (any_mfu ? of("MFU", Metric::mfu) : of("Measured MFU", Metric::measured_mfu)) + "</div>\n";
}

/// Table of the runs' flags; flags that differ come first.
std::string configurations(const std::vector<RunFile>& runs) {
  std::map<std::string, std::vector<std::string>> flags;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    for (const auto& [name, value] : runs[r].history.configuration()) {
      auto& cells = flags[std::string(name)];
      cells.resize(runs.size());
      cells[r] = value.is_string() ? std::string(value.get_string()) : json::serialize(value);
    }
  }
  if (flags.empty()) return "<p>Not in the metrics.</p>\n";
  std::string same, other;
  for (const auto& [name, cells] : flags) {
    const bool differs =
        std::any_of(cells.begin(), cells.end(), [&](const auto& cell) { return cell != cells[0]; });
    std::string row = fmt::format("<tr><th>{}</th>", markup_text(name));
    for (const std::string& cell : cells)
      row += fmt::format("<td{}>{}</td>", differs ? " class=\"differs\"" : "",
                         markup_text(cell.empty() ? none : cell));
    (differs ? other : same) += row + "</tr>\n";
  }
  return "<div class=\"scroll\"><table>\n" + other + same + "</table></div>\n";
}

std::string memory_of(const RunFile& run) {
  const json::value* memory = run.history.last().if_contains("memory");
  if (memory == nullptr || !memory->is_object()) return {};
  std::string rows;
  for (const auto& [kind, bytes] : memory->get_object())
    if (bytes.is_number() && bytes.to_number<double>() > 0)
      rows += fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", markup_text(std::string_view(kind)),
                          rounded_bytes(bytes.to_number<double>()));
  return "<table>\n" + rows + "</table>\n";
}

std::string details(const RunFile& run) {
  std::string text = timeline(run);
  if (!run.trace.shares.empty()) {
    text += "<div class=\"scroll\"><table><tr><th>rank</th>";
    const std::vector<const char*> kinds{"forward", "backward", "weights", "optimizer",
                                         "wait",    "send",     "gather",  "reduce"};
    for (const char* kind : kinds) text += fmt::format("<th>{}</th>", kind);
    text += "</tr>\n";
    for (const auto& [rank, shares] : run.trace.shares) {
      if (rank >= 64) {
        text += fmt::format("<tr><th>…</th><td colspan=\"8\">{} ranks in total</td></tr>", run.trace.shares.size());
        break;
      }
      text += fmt::format("<tr><th>{}</th>", rank);
      for (const char* kind : kinds) {
        const auto found = shares.find(kind);
        text += fmt::format("<td>{}</td>", percent(found == shares.end() ? 0 : found->second));
      }
      text += "</tr>\n";
    }
    text += "</table></div>\n";
  }
  if (const std::string memory = memory_of(run); !memory.empty())
    text += "<h3>Planned memory of rank 0</h3>\n" + memory;
  if (!run.history.warnings().empty()) {
    text += "<h3>Warnings</h3>\n<ul>";
    for (const auto& each : run.history.warnings())
      text += fmt::format("<li>step {}: {}</li>\n", each.step, markup_text(each.text));
    text += "</ul>\n";
  }
  for (const auto& each : run.history.samples())
    text += fmt::format("<h3>Sample after step {}</h3><pre>{}</pre>\n", each.step, markup_text(each.text));
  return text.empty() ? text : fmt::format("<h2>{}</h2>\n{}", markup_text(run.name), text);
}

}  // namespace

std::vector<SummaryRow> summary_rows(const std::vector<RunFile>& runs, double price_per_hour) {
  std::vector<SummaryRow> rows;
  const auto row = [&](const std::string& name, const std::function<std::string(const RunFile&)>& value) {
    SummaryRow one{name, {}};
    for (const RunFile& run : runs) one.values.push_back(value(run));
    const bool any =
        std::any_of(one.values.begin(), one.values.end(), [](const auto& each) { return each != none; });
    if (any) rows.push_back(std::move(one));
  };
  const auto count = [](auto value) {
    return value > 0 ? actors::format_count(static_cast<double>(value)) : std::string(none);
  };
  row("steps", [](const RunFile& run) { return fmt::format("{}", run.history.totals().steps); });
  row("tokens or images", [&](const RunFile& run) { return count(run.history.totals().tokens); });
  row("total step time", [](const RunFile& run) { return actors::format_duration(run.history.totals().seconds); });
  row("mean step time", [](const RunFile& run) { return seconds_text(mean_of(run, Metric::seconds)); });
  row("throughput per second", [&](const RunFile& run) {
    const auto& totals = run.history.totals();
    const double counted = totals.seconds - totals.repeated_seconds;
    return count(counted > 0 ? totals.tokens / counted : 0);
  });
  row("goodput per second", [&](const RunFile& run) {
    const auto& totals = run.history.totals();
    return count(seconds_of(totals) > 0 ? totals.tokens / seconds_of(totals) : 0);
  });
  row("productive time", [&](const RunFile& run) {
    const auto& totals = run.history.totals();
    const double all = seconds_of(totals);
    return percent(all > 0 ? (totals.seconds - totals.repeated_seconds) / all
                           : std::numeric_limits<double>::quiet_NaN());
  });
  row("device-hours", [](const RunFile& run) { return number(device_hours(run)); });
  if (price_per_hour > 0) {
    row("cost", [&](const RunFile& run) { return number(price_per_hour * device_hours(run)); });
    row("cost per million tokens or images", [&](const RunFile& run) {
      const double tokens = run.history.totals().tokens;
      return tokens > 0 ? number(price_per_hour * device_hours(run) / tokens * 1e6) : std::string(none);
    });
  }
  row("MFU", [](const RunFile& run) { return percent(mean_of(run, Metric::mfu)); });
  row("measured MFU", [](const RunFile& run) { return percent(mean_of(run, Metric::measured_mfu)); });
  row("last loss", [](const RunFile& run) { return number(last_loss(run)); });
  using Evaluation = History::Evaluation;
  const auto less = [](double a, double b) { return a < b; };
  const auto more = [](double a, double b) { return a > b; };
  row("last validation loss", [](const RunFile& run) { return number(last_of(run, &Evaluation::loss)); });
  row("best validation loss", [&](const RunFile& run) { return number(best_of(run, &Evaluation::loss, less)); });
  row("last validation accuracy", [](const RunFile& run) { return percent(last_of(run, &Evaluation::accuracy)); });
  row("best validation accuracy",
      [&](const RunFile& run) { return percent(best_of(run, &Evaluation::accuracy, more)); });
  row("last HellaSwag", [](const RunFile& run) { return percent(last_of(run, &Evaluation::hellaswag)); });
  row("waiting", [](const RunFile& run) { return percent(share_of(run, "wait")); });
  row("computing", [](const RunFile& run) {
    return percent(share_of(run, "forward") + share_of(run, "backward") + share_of(run, "weights") +
                   share_of(run, "optimizer"));
  });
  row("predicted / measured step", [](const RunFile& run) { return predicted(run, "step_seconds", seconds_text); });
  row("predicted / measured bytes inside nodes",
      [](const RunFile& run) { return predicted(run, "bytes_intra", rounded_bytes); });
  row("predicted / measured bytes between nodes",
      [](const RunFile& run) { return predicted(run, "bytes_inter", rounded_bytes); });
  row("predicted / measured memory",
      [](const RunFile& run) { return predicted(run, "device_bytes", rounded_bytes); });
  const auto positive = [](std::int64_t value) { return value > 0 ? fmt::format("{}", value) : std::string(none); };
  row("checkpoints", [&](const RunFile& run) { return positive(run.history.totals().checkpoints); });
  row("bad steps", [&](const RunFile& run) { return positive(run.history.totals().bad_steps); });
  row("skipped steps", [&](const RunFile& run) { return positive(run.history.totals().skipped); });
  row("invalid lines", [&](const RunFile& run) { return positive(static_cast<std::int64_t>(run.lines_left_out)); });
  return rows;
}

std::string report_page(const std::vector<RunFile>& runs, const std::string& title, double price_per_hour) {
  std::string page = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\">\n<title>{0}</title>\n<style>{1}</style></head>\n<body>\n"
      "<h1>{0}</h1>\n<div class=\"scroll\"><table>\n<tr><th></th>",
      markup_text(title), style);
  for (std::size_t r = 0; r < runs.size(); ++r)
    page += fmt::format("<th><i style=\"background: var(--run{})\"></i>{}</th>", r % 6, markup_text(runs[r].name));
  page += "</tr>\n";
  for (const SummaryRow& row : summary_rows(runs, price_per_hour)) {
    page += fmt::format("<tr><th>{}</th>", markup_text(row.name));
    for (const std::string& value : row.values) page += fmt::format("<td>{}</td>", markup_text(value));
    page += "</tr>\n";
  }
  page += "</table></div>\n" + plots(runs);
  for (const RunFile& run : runs) page += details(run);
  return page + "<h2>Configuration</h2>\n" + configurations(runs) + "</body></html>\n";
}

}  // namespace ranvier::apps

#include "apps/report/report_page.hpp"

#include "actors/watch/reporter.hpp"
#include "apps/view/page.hpp"
#include "runtime/device/arena.hpp"
#include "runtime/trace/trace.hpp"

#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <limits>
#include <optional>
#include <utility>

namespace ranvier::apps {
namespace {

namespace json = boost::json;

constexpr const char* none = "–";
constexpr double missing = std::numeric_limits<double>::quiet_NaN();

std::string number(double value) { return std::isfinite(value) ? fmt::format("{:.5g}", value) : none; }

std::string percent(double share) { return std::isfinite(share) ? fmt::format("{:.1f}%", 100 * share) : none; }

constexpr std::int64_t all_steps = std::numeric_limits<std::int64_t>::max();

/// Mean over steps `first` to `last`; NaN: none of them has a value.
double mean_of(const RunFile& run, Metric metric, std::int64_t first = 0, std::int64_t last = all_steps) {
  const auto bins = run.history.series().between(first, last, 1);
  return bins.empty() || bins[0][metric].count == 0 ? missing : bins[0][metric].mean;
}

/// Duration of all steps, repeated ones included, and of checkpoint stalls.
double seconds_of(const History::Totals& totals) { return totals.seconds + totals.checkpoint_waits; }

/// Mean over the last 1 % of all steps, which is less noisy than one batch.
double last_loss(const RunFile& run) {
  const std::int64_t last = run.history.series().last_step();
  return mean_of(run, Metric::loss, last - last / 100, last);
}

using Evaluated = std::optional<double> History::Evaluation::*;

double best_of(const RunFile& run, Evaluated which, bool (*better)(double, double)) {
  double best = missing;
  for (const auto& each : run.history.evaluations())
    if (const auto& value = each.*which; value && (std::isnan(best) || better(*value, best))) best = *value;
  return best;
}

double last_of(const RunFile& run, Evaluated which) {
  const auto& all = run.history.evaluations();
  const auto found =
      std::find_if(all.rbegin(), all.rend(), [&](const auto& each) { return (each.*which).has_value(); });
  return found == all.rend() ? missing : *((*found).*which);
}

/// Hours summed over all devices; NaN: the metrics lack the grid.
double device_hours(const RunFile& run) {
  const auto grid = grid_of(run);
  return grid ? grid->ranks() * seconds_of(run.history.totals()) / 3600 : missing;
}

/// Mean share of the ranks' time.
double share_of(const RunFile& run, std::initializer_list<runtime::SpanKind> kinds) {
  double sum = 0;
  for (const auto& [summary, spans] : run.ranks.ranks)
    for (const auto kind : kinds) sum += summary.seconds[static_cast<std::size_t>(kind)];
  return sum / run.ranks.at_seconds / static_cast<double>(run.ranks.ranks.size());  // NaN without a trace
}

/// "predicted / measured (difference)" of one value of --profile.
std::string predicted(const RunFile& run, const char* name, const std::function<std::string(double)>& text) {
  const auto value = [&](const char* which) {
    const json::object* found = object_of(run.history.prediction(), which);
    return found != nullptr ? number_of(*found, name) : missing;
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

/// The data that the page reads from a server while a run trains.
std::string json_of(const RunFile& run) {
  json::object about;
  if (const auto grid = grid_of(run)) about = {{"stages", grid->g_inter}, {"rows", grid->g_data}};
  json::array options;
  for (const auto& [name, value] : run.history.configuration())
    options.push_back(json::array{"", name, value.is_string() ? value : json::value(json::serialize(value))});
  about["options"] = std::move(options);
  return fmt::format(R"({{"name":{},"about":{},"status":{},"series":{},"ranks":{}}})", json::serialize(run.name),
                     json::serialize(about), json::serialize(status_json(run.history)),
                     series_json(run.history.series().between(0, all_steps, max_points)),
                     ranks_json(run.ranks, {}));
}

}  // namespace

std::vector<SummaryRow> summary_rows(const std::vector<RunFile>& runs, double price_per_hour) {
  std::vector<SummaryRow> rows;
  const auto row = [&](const std::string& name, const std::function<std::string(const RunFile&)>& value) {
    SummaryRow one{name, {}};
    for (const RunFile& run : runs) one.values.push_back(value(run));
    const bool any = std::ranges::any_of(one.values, [](const auto& each) { return each != none; });
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
    return percent(all > 0 ? (totals.seconds - totals.repeated_seconds) / all : missing);
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
  row("waiting", [](const RunFile& run) { return percent(share_of(run, {runtime::SpanKind::wait})); });
  row("computing", [](const RunFile& run) {
    using enum runtime::SpanKind;
    return percent(share_of(run, {forward, backward, weights, optimizer}));
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
  std::string text, all;
  json::array summary;
  for (const RunFile& run : runs) text += fmt::format("{}{}", text.empty() ? "" : ", ", run.name);
  for (const SummaryRow& row : summary_rows(runs, price_per_hour)) {
    text += fmt::format("; {}: {}", row.name, fmt::join(row.values, ", "));
    summary.push_back({row.name, json::array(row.values.begin(), row.values.end())});
  }
  for (const RunFile& run : runs) all += (all.empty() ? "" : ",\n") + json_of(run);
  return finished_page(title, text,
                       fmt::format("{{\"title\":{},\"summary\":{},\"runs\":[\n{}]}}", json::serialize(title),
                                   json::serialize(summary), all));
}

}  // namespace ranvier::apps

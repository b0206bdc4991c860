#include "apps/view/page.hpp"

#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>
#include <fmt/ranges.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <ranges>
#include <string_view>
#include <utility>

namespace ranvier::apps {
namespace {

namespace json = boost::json;

constexpr std::size_t max_listed_evaluations = 400;

/// Six digits are enough for a plot and keep the text short.
std::string number_text(double value) { return std::isfinite(value) ? fmt::format("{:.6g}", value) : "null"; }

/// "[1,2]" from the texts of the items.
template <typename Items, typename Text>
std::string list_text(const Items& items, const Text& text) {
  return fmt::format("[{}]", fmt::join(items | std::views::transform(text), ","));
}

}  // namespace

json::value json_number(std::optional<double> value) {
  return value && std::isfinite(*value) ? json::value(*value) : json::value(nullptr);
}

json::object status_json(const History& history) {
  const History::Totals& totals = history.totals();
  json::array evaluations, samples, checkpoints, warnings;
  const auto& all = history.evaluations();
  const std::size_t every = all.size() / max_listed_evaluations + 1;
  for (std::size_t i = (all.size() + every - 1) % every; i < all.size(); i += every)  // the last one among them
    evaluations.push_back(json::array{all[i].step, json_number(all[i].loss), json_number(all[i].accuracy),
                                      json_number(all[i].hellaswag)});
  for (const auto& each : history.samples()) samples.push_back(json::array{each.step, each.text});
  for (const auto& each : history.checkpoints())
    checkpoints.push_back(json::object{{"step", each.step},
                                       {"bytes", each.bytes},
                                       {"seconds", each.seconds},
                                       {"waited_seconds", each.waited_seconds},
                                       {"failure", each.failure}});
  for (const auto& each : history.warnings()) warnings.push_back(json::array{each.step, each.text});
  // The latest step times, for the ETA.
  const std::int64_t done = history.series().last_step();
  double step_seconds = std::numeric_limits<double>::quiet_NaN();
  if (const auto recent = history.series().between(done - 15, done, 1); !recent.empty())
    step_seconds = recent[0][Metric::seconds].mean;
  return {{"step", done},
          {"step_seconds", json_number(step_seconds)},
          {"tokens", totals.tokens},
          {"bad_steps", totals.bad_steps},
          {"skipped", totals.skipped},
          {"repeated_seconds", totals.repeated_seconds},
          {"checkpoint_waits", totals.checkpoint_waits},
          {"last", history.last()},
          {"evaluations", std::move(evaluations)},
          {"samples", std::move(samples)},
          {"checkpoints", std::move(checkpoints)},
          {"warnings", std::move(warnings)}};
}

std::string series_json(const std::vector<StepBin>& all) {
  std::string text = "{\"step\":" + list_text(all, &StepBin::last);
  for (std::size_t f = 0; f < figure_count; ++f) {
    const auto list = [&](std::string_view suffix, const auto& of) {
      text += fmt::format(",\"{}{}\":{}", figure_names[f], suffix, list_text(all, [&](const StepBin& bin) {
                            const BinnedValue& value = bin.values[f];
                            return value.count > 0 ? number_text(of(value)) : "null";
                          }));
    };
    list("", [](const BinnedValue& value) { return value.mean; });
    const auto metric = static_cast<Metric>(f);
    if (metric == Metric::learning_rate || metric == Metric::mfu || metric == Metric::measured_mfu) continue;
    list("_least", [](const BinnedValue& value) { return static_cast<double>(value.least); });
    list("_most", [](const BinnedValue& value) { return static_cast<double>(value.most); });
  }
  return text + '}';
}

std::string ranks_json(const RankSnapshot& now, const RankSnapshot& before) {
  const auto kind_text = [](int kind) {
    return fmt::format("\"{}\"", runtime::to_string(static_cast<runtime::SpanKind>(kind)));
  };
  const auto rank_text = [&](std::size_t r) {
    const auto& [rank, spans] = now.ranks[r];
    const std::string waits(rank.waits.data(), ::strnlen(rank.waits.data(), rank.waits.size()));
    std::string since;
    if (r < before.ranks.size())
      since = fmt::format(R"(,"intra_since":{:.0f},"inter_since":{:.0f})",
                          rank.bytes_intra - before.ranks[r].summary.bytes_intra,
                          rank.bytes_inter - before.ranks[r].summary.bytes_inter);
    return fmt::format(R"({{"step":{},"waits":{},"device_bytes":{},"resident_bytes":{},"bytes_intra":{:.0f},)"
                       R"("bytes_inter":{:.0f},"seconds":{}{},"spans":{}}})",
                       rank.step, json::serialize(json::string_view(waits)), rank.device_bytes, rank.resident_bytes,
                       rank.bytes_intra, rank.bytes_inter, list_text(rank.seconds, number_text), since,
                       list_text(spans, [](const SummarySpan& span) {
                         return fmt::format("[{},{},{},{:.5g},{:.4g}]", span.kind, span.lane, span.index,
                                            span.begin_ms, span.length_ms);
                       }));
  };
  return fmt::format(R"({{"step":{},"step_ms":{},"seconds":{},"since_seconds":{},"kinds":{},"ranks":{}}})",
                     now.step, number_text(now.step_ms), number_text(now.at_seconds),
                     before.ranks.empty() ? "null" : number_text(before.at_seconds),
                     list_text(std::views::iota(0, runtime::span_kinds), kind_text),
                     list_text(std::views::iota(std::size_t{0}, now.ranks.size()), rank_text));
}

}  // namespace ranvier::apps

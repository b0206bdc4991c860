#include "apps/view/run_json.hpp"

#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <string_view>
#include <utility>

namespace ranvier::apps {
namespace {

namespace json = boost::json;

constexpr std::size_t max_listed_evaluations = 400;

/// Six digits are enough for a plot and keep the text short.
void append_number(std::string& text, double value) {
  if (std::isfinite(value)) {
    fmt::format_to(std::back_inserter(text), "{:.6g}", value);
  } else {
    text += "null";
  }
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
  std::string text = "{\"step\":[";
  for (std::size_t i = 0; i < all.size(); ++i)
    fmt::format_to(std::back_inserter(text), "{}{}", i ? "," : "", all[i].last);
  text += ']';
  for (std::size_t f = 0; f < figure_count; ++f) {
    const auto list = [&](std::string_view suffix, const auto& of) {
      fmt::format_to(std::back_inserter(text), ",\"{}{}\":[", figure_names[f], suffix);
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (i > 0) text += ',';
        const BinnedValue& value = all[i].values[f];
        append_number(text, value.count > 0 ? of(value) : std::numeric_limits<double>::quiet_NaN());
      }
      text += ']';
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
  std::string text = fmt::format("{{\"step\":{},\"step_ms\":", now.step);
  append_number(text, now.step_ms);
  text += ",\"seconds\":";
  append_number(text, now.at_seconds);
  text += ",\"since_seconds\":";
  append_number(text, before.ranks.empty() ? std::numeric_limits<double>::quiet_NaN() : before.at_seconds);
  text += ",\"kinds\":[";
  for (int k = 0; k < runtime::span_kinds; ++k)
    fmt::format_to(std::back_inserter(text), "{}\"{}\"", k ? "," : "",
                   runtime::to_string(static_cast<runtime::SpanKind>(k)));
  text += "],\"ranks\":[";
  for (std::size_t r = 0; r < now.ranks.size(); ++r) {
    const auto& [rank, spans] = now.ranks[r];
    const std::string waits(rank.waits.data(), ::strnlen(rank.waits.data(), rank.waits.size()));
    fmt::format_to(std::back_inserter(text),
                   R"({}{{"step":{},"waits":{},"device_bytes":{},"resident_bytes":{},"bytes_intra":{:.0f},)"
                   R"("bytes_inter":{:.0f},"seconds":[)",
                   r ? "," : "", rank.step, json::serialize(json::string_view(waits)), rank.device_bytes,
                   rank.resident_bytes, rank.bytes_intra, rank.bytes_inter);
    for (std::size_t k = 0; k < rank.seconds.size(); ++k) {
      if (k > 0) text += ',';
      append_number(text, rank.seconds[k]);
    }
    text += ']';
    if (r < before.ranks.size()) {
      const RankSummary& earlier = before.ranks[r].summary;
      fmt::format_to(std::back_inserter(text), R"(,"intra_since":{:.0f},"inter_since":{:.0f})",
                     rank.bytes_intra - earlier.bytes_intra, rank.bytes_inter - earlier.bytes_inter);
    }
    text += ",\"spans\":[";
    for (std::size_t s = 0; s < spans.size(); ++s)
      fmt::format_to(std::back_inserter(text), "{}[{},{},{},{:.5g},{:.4g}]", s ? "," : "", spans[s].kind,
                     spans[s].lane, spans[s].index, spans[s].begin_ms, spans[s].length_ms);
    text += "]}";
  }
  return text + "]}";
}

}  // namespace ranvier::apps

#include "apps/plan/plan_report.hpp"

#include "actors/watch/reporter.hpp"
#include "apps/plan/rows.hpp"

#include <boost/json/array.hpp>
#include <fmt/format.h>

#include <algorithm>

namespace ranvier::apps {

using actors::format_count;
using actors::Prediction;
using actors::RankTraffic;
using runtime::format_bytes;
using runtime::MemoryKind;

namespace {

namespace json = boost::json;

/// Column of the link table: bytes per step and rank on one kind of link, messages and NCCL together.
struct LinkColumn {
  const char* title;
  const char* key;
  double RankTraffic::* bytes;
  double RankTraffic::* more = nullptr;

  /// Maximum over ranks.
  [[nodiscard]] double most(const Prediction& p) const {
    double most = 0;
    for (const RankTraffic& rank : p.traffic)
      most = std::max(most, rank.*bytes + (more != nullptr ? rank.*more : 0.0));
    return most;
  }
};
constexpr LinkColumn link_columns[] = {
    {"in nodes", "bytes_in_nodes", &RankTraffic::intra, &RankTraffic::nccl_intra},
    {"between nodes", "bytes_between_nodes", &RankTraffic::inter, &RankTraffic::nccl_inter},
    {"host to GPU", "bytes_to_device", &RankTraffic::to_device},
    {"GPU to host", "bytes_to_host", &RankTraffic::to_host},
    {"files read", "file_bytes_read", &RankTraffic::read},
    {"files written", "file_bytes_written", &RankTraffic::written}};

std::string memory_cell(std::size_t bytes) { return bytes == 0 ? "–" : format_bytes(bytes); }

std::string link_cell(double bytes) { return bytes < 0.5 ? "–" : format_bytes(static_cast<std::size_t>(bytes)); }

std::string rate(const Prediction& prediction, const ReportContext& context) {
  return fmt::format("{} {}/s", format_count(prediction.tokens_per_second),
                     context.item == "token" ? "tok" : context.item + "s");
}

std::string share(double value) { return fmt::format("{:.1f}%", 100 * value); }

std::string mfu(const Prediction& prediction) { return prediction.mfu > 0 ? share(prediction.mfu) : "–"; }

/// Only a simulation has a bubble.
std::string bubble(const Prediction& prediction) {
  return prediction.stages.empty() ? "–" : share(prediction.bubble);
}

std::string count_of(std::size_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

/// Cost per million tokens; none if the price is unknown.
std::optional<double> cost_per_million(const Prediction& prediction, const ReportContext& context) {
  if (context.price_per_hour <= 0 || prediction.tokens_per_second <= 0) return {};
  return context.price_per_hour * context.world / 3600 / prediction.tokens_per_second * 1e6;
}

std::string cost(const Prediction& prediction, const ReportContext& context) {
  const auto cost = cost_per_million(prediction, context);
  return cost ? fmt::format("{:.4g}", *cost) : "–";
}

std::string cost_title(const ReportContext& context) { return fmt::format("cost/M {}s", context.item); }

std::string milliseconds(double seconds) { return fmt::format("{:.1f} ms", 1e3 * seconds); }

json::object bytes_by_kind(const std::array<std::size_t, runtime::memory_kinds>& bytes) {
  json::object all;
  for (int k = 0; k < runtime::memory_kinds; ++k)
    all[to_string(static_cast<MemoryKind>(k))] = bytes[static_cast<std::size_t>(k)];
  return all;
}

/// Line below a row with several candidates; empty if it has one.
std::string switches_line(const Ranked& ranked) {
  std::vector<Candidate> row{ranked.candidate};
  for (const Ranked& each : ranked.alternatives) row.push_back(each.candidate);
  const std::string switches = switches_text(row);
  return switches.empty() ? switches : fmt::format("     same time with {}\n", switches);
}

/// Table of the links that at least one of the best uses; empty without simulation.
std::string links_table(const Ranking& ranking) {
  std::vector<LinkColumn> used;
  for (const LinkColumn& column : link_columns) {
    if (std::ranges::any_of(ranking.best, [&](const Ranked& ranked) { return column.most(ranked.prediction) > 0; }))
      used.push_back(column);
  }
  if (used.empty()) return {};
  std::string text = fmt::format("\nbytes per step by link, maximum over ranks\n{:>3} ", "");
  for (const LinkColumn& column : used) text += fmt::format("{:>15}", column.title);
  text += '\n';
  for (std::size_t i = 0; i < ranking.best.size(); ++i) {
    text += fmt::format("{:>3} ", i + 1);
    for (const LinkColumn& column : used)
      text += fmt::format("{:>15}", link_cell(column.most(ranking.best[i].prediction)));
    text += '\n';
  }
  return text;
}

}  // namespace

ReportContext report_context(const Planner& planner, double price_per_hour) {
  return {.profile = &planner.profile(),
          .world = planner.world(),
          .batch_size = planner.batch_size(),
          .precision = planner.precision(),
          .price_per_hour = price_per_hour,
          .item = planner.job().item};
}

std::string ranking_table(const Ranking& ranking, const ReportContext& context) {
  std::size_t widest = 9;
  for (const Ranked& ranked : ranking.best)
    widest = std::max(widest, ranked.candidate.text().size() - 1);  // "×" is two bytes
  std::string text =
      fmt::format("best plans for {} on {} in {}, {} per step; memory is the maximum over ranks\n",
                  count_of(static_cast<std::size_t>(context.world), "rank"), context.profile->name,
                  to_string(context.precision), count_of(static_cast<std::size_t>(context.batch_size), "sample"));
  constexpr auto line = "{:>3}  {:<{}} {:>13} {:>12} {:>7} {:>7} {:>11} {:>11} {:>11} {:>14}\n";
  text += fmt::format(line, "", "candidate", widest, "rate", "step", "MFU", "bubble", "device", "host", "disk",
                      cost_title(context));
  for (std::size_t i = 0; i < ranking.best.size(); ++i) {
    const Ranked& ranked = ranking.best[i];
    const Prediction& p = ranked.prediction;
    text += fmt::format(line, i + 1, ranked.candidate.text(), widest, rate(p, context),
                        milliseconds(p.step_seconds), mfu(p), bubble(p), memory_cell(p.device_bytes),
                        memory_cell(p.host_bytes), memory_cell(p.file_bytes), cost(p, context));
    text += switches_line(ranked);
  }
  text += links_table(ranking);
  text += fmt::format("\nmemory by kind on the device of the rank with the most (+ off the device)\n{:>3} ", "");
  for (int k = 0; k < runtime::memory_kinds; ++k)
    text += fmt::format("{:>23}", to_string(static_cast<MemoryKind>(k)));
  text += fmt::format("{:>23}\n", "saved activations");
  for (std::size_t i = 0; i < ranking.best.size(); ++i) {
    const KindBytes& kinds = ranking.best[i].trial.kinds;
    text += fmt::format("{:>3} ", i + 1);
    for (std::size_t k = 0; k < kinds.device.size(); ++k) {
      std::string cell = memory_cell(kinds.device[k]);
      if (kinds.elsewhere[k] > 0) cell += " + " + memory_cell(kinds.elsewhere[k]);
      text += fmt::format("{:>23}", cell);
    }
    text += fmt::format("{:>23}\n", ranking.best[i].trial.saved_activations);
  }
  return text;
}

std::string stages_table(const Ranked& ranked) {
  constexpr std::size_t max_stages = 16;
  std::vector<std::pair<std::string, actors::StagePrediction>> lines;
  const auto& stages = ranked.prediction.stages;
  if (stages.empty()) return {};
  if (stages.size() <= max_stages) {
    for (std::size_t s = 0; s < stages.size(); ++s) lines.emplace_back(fmt::format("{}", s), stages[s]);
  } else {
    actors::StagePrediction mean;
    const auto count = static_cast<double>(stages.size());
    for (const actors::StagePrediction& stage : stages) mean.add(stage, 1 / count);
    const auto [idlest, busiest] =
        std::ranges::minmax_element(stages, [](const auto& a, const auto& b) { return a.busy() < b.busy(); });
    lines.emplace_back("average", mean);
    lines.emplace_back(fmt::format("{}, busiest", busiest - stages.begin()), *busiest);
    lines.emplace_back(fmt::format("{}, idlest", idlest - stages.begin()), *idlest);
  }
  constexpr auto line = "{:>13}{:>14}{:>14}{:>14}{:>14}{:>14}{:>14}\n";
  std::string text =
      "\ntime per step of one rank per stage, best plan\n" +
      fmt::format(line, "stage", "forward", "backward", "weights", "optimizer", "other work", "waiting");
  for (const auto& [name, stage] : lines) {
    const auto cell = [](double seconds) { return seconds > 0 ? milliseconds(seconds) : "–"; };
    text += fmt::format(line, name, cell(stage.forward_seconds), cell(stage.backward_seconds),
                        cell(stage.weights_seconds), cell(stage.optimizer_seconds), cell(stage.other_seconds),
                        cell(stage.step_seconds * (1 - stage.busy())));
  }
  return text;
}

std::string search_lines(const Ranking& ranking) {
  const SearchResult& search = ranking.search;
  std::string text =
      fmt::format("{}: {} planned, {} simulated, {} pruned by their lower bounds\n",
                  count_of(ranking.candidates, "candidate"), search.planned, search.simulated, search.cut);
  for (const auto& [why, count] : ranking.left_out) text += fmt::format("  left out {:>7}  {}\n", count, why);
  if (search.open > 0 && !ranking.best.empty()) {
    const double best = ranking.best.front().prediction.step_seconds;
    const double gain = search.min_open > 0 ? best / search.min_open - 1 : 0;
    text += fmt::format("  {} more were neither simulated nor pruned (--simulations): {}\n", search.open,
                        gain > 0 ? fmt::format("one of them may be up to {:.1f}% faster than the best", 100 * gain)
                                 : std::string("none of them is faster than the best"));
  }
  return text;
}

std::optional<std::string> none_runs(const Ranking& ranking) {
  if (!ranking.best.empty() || ranking.closest) return {};
  std::string reasons;
  for (const auto& [why, count] : ranking.left_out) {
    if (why.starts_with("memory: ")) return {};
    constexpr std::string_view before = "refused: ";
    if (!why.starts_with(before)) continue;
    if (!reasons.empty()) reasons += "; ";
    reasons += fmt::format("{} ({} of them)", std::string_view(why).substr(before.size()), count);
  }
  if (reasons.empty()) return {};
  return fmt::format("none of {} candidates can run: {}", ranking.candidates, reasons);
}

std::string memory_remedy(runtime::DType precision) {
  return fmt::format(
      "use more ranks, {}--offload infinity-nvme with --nvme DIR, --moment-dtype int8, --tile, or a smaller "
      "--batch-size or model",
      precision == runtime::DType::f32 ? "--precision bf16, " : "");
}

std::string closest_text(const Closest& closest) {
  return fmt::format("closest: {}\n  {} ({:.1f}% of the capacity)\n", closest.candidate.text(), closest.lacks,
                     100 * closest.fullness);
}

std::string why_none(const Ranking& ranking) {
  if (const auto why = none_runs(ranking)) return *why;
  return ranking.closest ? fmt::format("nothing fits: {}", ranking.closest->lacks) : std::string("nothing fits");
}

std::string nothing_fits(const Ranking& ranking, const ReportContext& context) {
  std::string text = fmt::format("nothing fits {} ranks of {}\n", context.world, context.profile->name);
  if (ranking.closest) text += closest_text(*ranking.closest);
  return text + memory_remedy(context.precision) + '\n';
}

BarPlot ranking_plot(const Ranking& ranking, const ReportContext& context) {
  BarPlot plot{
      .title =
          fmt::format("{} ranks on {}, {}", context.world, context.profile->name, to_string(context.precision)),
      .about = fmt::format("predicted {}s per second, best of {} candidates", context.item, ranking.candidates)};
  for (const Ranked& ranked : ranking.best)
    plot.groups.push_back(
        {ranked.candidate.text(),
         {{ranked.prediction.tokens_per_second,
           fmt::format("{}, MFU {}", rate(ranked.prediction, context), mfu(ranked.prediction)), 0}}});
  return plot;
}

json::object to_json(const Ranked& ranked, const ReportContext& context) {
  const Prediction& p = ranked.prediction;
  json::object flags;
  for (const GivenFlag& flag : ranked.config) flags[flag.name] = flag.value;
  json::array stages;
  for (const actors::StagePrediction& stage : p.stages)
    stages.push_back(json::object{{"forward_seconds", stage.forward_seconds},
                                  {"backward_seconds", stage.backward_seconds},
                                  {"weights_seconds", stage.weights_seconds},
                                  {"optimizer_seconds", stage.optimizer_seconds},
                                  {"other_seconds", stage.other_seconds},
                                  {"busy", stage.busy()}});
  json::object all{{"candidate", ranked.candidate.text()},
                   {"flags", std::move(flags)},
                   {"step_seconds", p.step_seconds},
                   {"tokens_per_second", p.tokens_per_second},
                   {"model_flops_per_second", p.model_flops_per_second},
                   {"mfu", p.mfu},
                   {"bubble", p.stages.empty() ? json::value() : json::value(p.bubble)},
                   {"bound_seconds", ranked.bound ? json::value(ranked.bound->seconds) : json::value()},
                   {"device_bytes", p.device_bytes},
                   {"device_bytes_of_all", p.device_bytes_of_all},
                   {"host_bytes", p.host_bytes},
                   {"file_bytes", p.file_bytes},
                   {"device_bytes_by_kind", bytes_by_kind(ranked.trial.kinds.device)},
                   {"other_bytes_by_kind", bytes_by_kind(ranked.trial.kinds.elsewhere)},
                   {"saved_activations", ranked.trial.saved_activations},
                   {"stages", std::move(stages)}};
  for (const LinkColumn& column : link_columns)
    all[column.key] = p.traffic.empty() ? json::value(nullptr) : json::value(column.most(p));
  if (const auto cost = cost_per_million(p, context)) all["cost_per_million_tokens"] = *cost;
  if (!ranked.alternatives.empty()) {
    json::array others;
    for (const Ranked& each : ranked.alternatives) others.push_back(to_json(each, context));
    all["alternatives"] = std::move(others);
  }
  return all;
}

json::object to_json(const Ranking& ranking, const ReportContext& context) {
  json::object left_out;
  for (const auto& [why, count] : ranking.left_out) left_out[why] = count;
  json::array best;
  for (const Ranked& ranked : ranking.best) best.push_back(to_json(ranked, context));
  json::object all{{"profile", context.profile->name},
                   {"precision", to_string(context.precision)},
                   {"world", context.world},
                   {"batch_size", context.batch_size},
                   {"candidates", ranking.candidates},
                   {"planned", ranking.search.planned},
                   {"simulated", ranking.search.simulated},
                   {"cut", ranking.search.cut},
                   {"open", ranking.search.open},
                   {"left_out", std::move(left_out)},
                   {"best", std::move(best)}};
  if (ranking.closest)
    all["closest"] = json::object{{"candidate", ranking.closest->candidate.text()},
                                  {"fullness", ranking.closest->fullness},
                                  {"lacks", ranking.closest->lacks}};
  return all;
}

std::string prediction_text(const Ranked& ranked, const ReportContext& context) {
  const Prediction& p = ranked.prediction;
  return fmt::format("{} per step, {}, MFU {}", milliseconds(p.step_seconds), rate(p, context), mfu(p));
}

std::string config_text(const Ranked& ranked, const ReportContext& context) {
  std::string text = fmt::format(
      "# for {} ranks on {} in {}: {}\n# predicted: {}; {} of device memory per rank\n"
      "# mpirun -n {} ranvier-train --config THIS --data …\n",
      context.world, context.profile->name, to_string(context.precision), ranked.candidate.text(),
      prediction_text(ranked, context), memory_cell(ranked.prediction.device_bytes), context.world);
  for (const GivenFlag& flag : ranked.config) text += fmt::format("{} = {}\n", flag.name, flag.value);
  return text;
}

std::string cases_table(const std::vector<Case>& cases) {
  std::size_t label = 4;
  for (const Case& one : cases) label = std::max(label, one.label.size());
  const double first = cases.front().best ? cases.front().best->prediction.tokens_per_second : 0;
  constexpr auto line = "{:<{}}  {:>5} {:>13} {:>6} {:>7} {:>7} {:>14} {:>13}  {}\n";
  std::string text = fmt::format(line, "what if", label, "dtype", "rate", "×", "MFU", "bubble",
                                 cost_title(cases.front().context), "unchanged", "best candidate");
  for (const Case& one : cases) {
    if (!one.best) {
      text += fmt::format("{:<{}}  {}\n", one.label, label, one.why_none);
      continue;
    }
    const Prediction& p = one.best->prediction;
    text += fmt::format(line, one.label, label, to_string(one.context.precision), rate(p, one.context),
                        first > 0 ? fmt::format("{:.2f}", p.tokens_per_second / first) : "–", mfu(p), bubble(p),
                        cost(p, one.context), one.kept ? rate(one.kept->prediction, one.context) : "does not fit",
                        one.best->candidate.text());
  }
  return text + "unchanged: the best plan of the first case, predicted for this case\n";
}

BarPlot cases_plot(const std::vector<Case>& cases) {
  const ReportContext& first = cases.front().context;
  BarPlot plot{.title = fmt::format("What if: {} ranks", first.world),
               .about = fmt::format("predicted {}s per second", first.item),
               .series = {"best plan of this case", "best plan of the first case, unchanged"}};
  for (const Case& one : cases) {
    const auto bar = [&](const std::optional<Ranked>& ranked, int series, const char* none) {
      return ranked ? Bar{ranked->prediction.tokens_per_second, rate(ranked->prediction, one.context), series}
                    : Bar{0, none, series};
    };
    plot.groups.push_back({one.best ? fmt::format("{}: {}", one.label, one.best->candidate.text()) : one.label,
                           {bar(one.best, 0, "no candidate"), bar(one.kept, 1, "does not fit")}});
  }
  return plot;
}

json::object to_json(const Case& one) {
  json::object all{{"case", one.label}, {"precision", to_string(one.context.precision)}};
  if (one.best) all["best"] = to_json(*one.best, one.context);
  if (!one.best) all["why_none"] = one.why_none;
  if (one.kept) all["unchanged"] = to_json(*one.kept, one.context);
  return all;
}

}  // namespace ranvier::apps

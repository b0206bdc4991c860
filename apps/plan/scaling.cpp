#include "apps/plan/scaling.hpp"

#include "actors/watch/reporter.hpp"
#include "apps/plan/scenarios.hpp"
#include "apps/program/flag_names.hpp"
#include "runtime/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace ranvier::apps {

namespace json = boost::json;

using actors::Prediction;

namespace {

runtime::MachineProfile with_free_links(runtime::MachineProfile profile) {
  constexpr double faster = 1e6;
  for (runtime::Link* const link : {&profile.links.intra_node, &profile.links.inter_node}) {
    link->latency_seconds = 0;
    link->bytes_per_second *= faster;
    link->node_bytes_per_second *= faster;
  }
  return profile;
}

bool is_left_out_for_memory(const Ranking& ranking) {
  return std::ranges::any_of(ranking.left_out,
                             [](const auto& reason) { return reason.first.starts_with("memory: "); });
}

/// Fraction of `seconds` that is saved if the step takes `others`.
double gain(double seconds, double others) { return seconds > 0 ? std::max(0.0, 1 - others / seconds) : 0; }

double of_rank(const ScalingPoint& point) {
  return point.best ? point.best->prediction.tokens_per_second / point.context.world : 0;
}

/// Rate per rank, divided by the rate per rank of the first point with a result.
double of_ideal(const std::vector<ScalingPoint>& points, const ScalingPoint& point) {
  const auto first = std::ranges::find_if(points, [](const auto& each) { return of_rank(each) > 0; });
  return first == points.end() ? 0 : of_rank(point) / of_rank(*first);
}

std::string unit(const ReportContext& context) { return context.item == "token" ? "tok" : context.item + "s"; }

std::string percent(double share) { return fmt::format("{:.1f}%", 100 * share); }

}  // namespace

std::string_view StepShares::limit() const noexcept {
  constexpr double little = 0.1;
  const double most = std::max({links, order, memory});
  if (most < little) return "compute";
  return most == links ? "links" : most == memory ? "memory" : "order";
}

ScalingPoint scaling_point(const std::vector<GivenFlag>& flags, const runtime::MachineProfile& profile,
                           double price_per_hour, const Predictor& predict, const SearchLimits& limits,
                           const std::optional<bool>& all_rows) {
  const Planner planner(flags, profile);
  ScalingPoint point{.context = report_context(planner, price_per_hour)};
  actors::PredictionOptions how = usual_prediction(planner.world());
  if (all_rows) how.distinct_only = !*all_rows;
  check_links(planner);
  Ranking ranking;
  try {
    ranking = rank_candidates(planner, predict, limits, how);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::usage) throw;
    point.why_none = message_of(error);  // only this number of ranks; the other points still count
    return point;
  }
  if (ranking.best.empty()) {
    point.why_none = why_none(ranking);
    return point;
  }
  point.best = std::move(ranking.best.front());
  const Prediction& found = point.best->prediction;
  const double without_links =
      predict_on(planner, predict, *point.best, with_free_links(profile), how).step_seconds;
  point.shares.links = gain(found.step_seconds, without_links);
  point.shares.order = std::max(0.0, found.bubble - point.shares.links);
  if (!is_left_out_for_memory(ranking)) return point;
  runtime::MachineProfile roomy = profile;
  roomy.device_memory = roomy.host_memory = roomy.disk = 0;  // unknown means unlimited
  const Ranking freely = rank_candidates(Planner(flags, roomy), predict, limits, how);
  if (!freely.best.empty())
    point.shares.memory = gain(found.step_seconds, freely.best.front().prediction.step_seconds);
  return point;
}

std::string scaling_table(const std::vector<ScalingPoint>& points) {
  const ReportContext& first = points.front().context;
  constexpr auto line = "{:>6}  {:>14} {:>12} {:>8} {:>7} {:>9} {:>7} {:>7} {:>7}  {:<10} {}\n";
  std::string text = fmt::format(
      "{} samples per step on {} in {}; shares of the step: links: messages; order: waiting for other ranks' work; "
      "memory: gain from more memory\n",
      first.batch_size, first.profile->name, to_string(first.precision));
  text += fmt::format(line, "ranks", "rate", "per rank", "ideal", "MFU", "compute", "links", "order", "memory",
                      "bottleneck", "best candidate");
  for (const ScalingPoint& point : points) {
    if (!point.best) {
      text += fmt::format("{:>6}  {}\n", point.context.world, point.why_none);
      continue;
    }
    const Prediction& p = point.best->prediction;
    text += fmt::format(line, point.context.world,
                        fmt::format("{} {}/s", actors::format_count(p.tokens_per_second), unit(point.context)),
                        actors::format_count(of_rank(point)), percent(of_ideal(points, point)),
                        p.mfu > 0 ? percent(p.mfu) : "–", percent(1 - p.bubble), percent(point.shares.links),
                        percent(point.shares.order), percent(point.shares.memory), point.shares.limit(),
                        point.best->candidate.text());
  }
  return text;
}

BarPlot scaling_plot(const std::vector<ScalingPoint>& points) {
  const ReportContext& first = points.front().context;
  BarPlot plot{
      .title = fmt::format("{} to {} ranks on {}", first.world, points.back().context.world, first.profile->name),
      .about =
          fmt::format("predicted {}s per second and rank, {} samples per step, split by time; at the end: total "
                      "and bottleneck",
                      first.item, first.batch_size),
      .series = {"computing", "messages", "waiting for other ranks' work"}};
  for (const ScalingPoint& point : points) {
    BarGroup& group = plot.groups.emplace_back();
    group.label = fmt::format("{}", point.context.world);
    if (!point.best) {
      group.bars.push_back({.note = "no candidate"});
      continue;
    }
    group.label += ": " + point.best->candidate.text();
    const double rate = of_rank(point), links = point.shares.links, order = point.shares.order;
    group.bars.push_back(
        {.value = rate,
         .note = fmt::format("{} {}/s, {}", actors::format_count(point.best->prediction.tokens_per_second),
                             unit(point.context), point.shares.limit()),
         .series = 0,
         .parts = {rate * (1 - links - order), rate * links, rate * order}});
  }
  return plot;
}

json::array to_json(const std::vector<ScalingPoint>& points) {
  json::array all;
  for (const ScalingPoint& point : points) {
    json::object one{{"world", point.context.world}};
    if (point.best) {
      one["best"] = to_json(*point.best, point.context);
      one["ideal"] = of_ideal(points, point);
      one["shares"] = json::object{
          {"links", point.shares.links}, {"order", point.shares.order}, {"memory", point.shares.memory}};
      one["limit"] = point.shares.limit();
    } else {
      one["why_none"] = point.why_none;
    }
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace ranvier::apps

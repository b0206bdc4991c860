#include "actors/schedule/stage_split.hpp"

#include "runtime/base/error.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>
#include <typeindex>
#include <typeinfo>

namespace ranvier::actors {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// Splits `layers` into one slice per stage so that `join(value of previous stages, cost of the slice)` is minimal;
/// join() increases with both.
template <typename Cost, typename Join>
std::vector<models::LayerRange> min_split(std::size_t layers, std::size_t stages, const Cost& cost,
                                          const Join& join) {
  std::vector<std::vector<std::size_t>> cuts(stages, std::vector<std::size_t>(layers + 1, 0));
  std::vector<double> least(layers + 1, infinity);
  least[0] = 0;
  for (std::size_t s = 0; s < stages; ++s) {
    std::vector<double> next(layers + 1, infinity);
    for (std::size_t end = s + 1; end <= layers - (stages - 1 - s); ++end) {
      for (std::size_t begin = s; begin < end; ++begin) {
        if (least[begin] == infinity) continue;
        const double value = join(least[begin], cost(s, begin, end));
        // Ties: more layers on early stages, as in models::balance().
        if (value > next[end] || value == infinity) continue;
        next[end] = value;
        cuts[s][end] = begin;
      }
    }
    least = std::move(next);
  }
  std::vector<models::LayerRange> ranges(stages);
  std::size_t end = layers;
  for (std::size_t s = stages; s-- > 0;) {
    ranges[s] = {cuts[s][end], end};
    end = ranges[s].begin;
  }
  return ranges;
}

/// Kind of each layer: layers with the same computation and memory have the same number.
std::vector<int> kinds_of_layers(const models::Architecture& architecture) {
  using Key = std::tuple<std::type_index, double, std::size_t, std::size_t>;
  std::map<Key, int> known;
  std::vector<int> kinds;
  for (std::size_t l = 0; l < architecture.layers.size(); ++l) {
    const models::Layer& layer = *architecture.layers[l];
    std::size_t parameters = 0;
    for (const models::UnitSpec& unit : layer.units()) parameters += unit.elements();
    const Key key{typeid(layer), architecture.flops_per_sample(l), layer.output_elements(architecture.positions),
                  parameters};
    kinds.push_back(known.try_emplace(key, static_cast<int>(known.size())).first->second);
  }
  return kinds;
}

}  // namespace

double row_seconds(const std::vector<double>& stage_seconds, int microbatches) {
  const double slowest = *std::ranges::max_element(stage_seconds);
  const double all = std::accumulate(stage_seconds.begin(), stage_seconds.end(), 0.0);
  return slowest + (all - slowest) / microbatches;
}

std::vector<models::LayerRange> fastest_split(const std::vector<double>& seconds,
                                              const std::vector<double>& slowness) {
  expect(!slowness.empty() && slowness.size() <= seconds.size(), "{} layers for {} stages", seconds.size(),
         slowness.size());
  std::vector<double> before(seconds.size() + 1, 0.0);  // total of previous layers, by layer
  std::partial_sum(seconds.begin(), seconds.end(), before.begin() + 1);
  const auto cost = [&](std::size_t stage, std::size_t begin, std::size_t end) {
    return slowness[stage] * (before[end] - before[begin]);
  };
  const auto larger = [](double a, double b) { return std::max(a, b); };
  double slowest = 0;
  const auto split = min_split(seconds.size(), slowness.size(), cost, larger);
  for (std::size_t s = 0; s < split.size(); ++s) slowest = std::max(slowest, cost(s, split[s].begin, split[s].end));
  // Makes the other stages as even as possible below the slowest; the margin covers rounding.
  const double bound = slowest * (1 + 1e-9);
  return min_split(
      seconds.size(), slowness.size(),
      [&](std::size_t stage, std::size_t begin, std::size_t end) {
        const double value = cost(stage, begin, end);
        return value <= bound ? value * value : infinity;
      },
      [](double a, double b) { return a + b; });
}

std::vector<double> slowness_of_stages(const std::vector<double>& seconds, const std::vector<int>& kinds,
                                       const std::vector<models::LayerRange>& slices, const SliceMap& map) {
  // Alternates between the times of kinds and the slowdown of stages, with the other one fixed.
  constexpr int rounds = 200;
  const auto stages = static_cast<std::size_t>(map.stages);
  const std::vector<std::size_t> stage_of = stages_of_layers(slices, map);
  std::vector<double> slowness(stages, 1.0);
  for (int round = 0; round < rounds; ++round) {
    std::map<int, std::pair<double, double>> of_kind;  // seconds at slowdown 1, and number of layers
    for (std::size_t l = 0; l < stage_of.size(); ++l) {
      auto& [sum, count] = of_kind[kinds[l]];
      sum += seconds[l] / slowness[stage_of[l]];
      ++count;
    }
    std::vector<double> took(stages, 0.0), usual(stages, 0.0);
    for (std::size_t l = 0; l < stage_of.size(); ++l) {
      took[stage_of[l]] += seconds[l];
      usual[stage_of[l]] += of_kind[kinds[l]].first / of_kind[kinds[l]].second;
    }
    double total = 0;
    for (std::size_t s = 0; s < stages; ++s)
      total += slowness[s] = took[s] > 0 && usual[s] > 0 ? took[s] / usual[s] : 1.0;
    for (double& value : slowness) value *= static_cast<double>(stages) / total;
  }
  return slowness;
}

SplitAdvice advise_split(const std::vector<LayerSeconds>& seconds, const models::Architecture& architecture,
                         const std::vector<models::LayerRange>& slices, const SliceMap& map, int microbatches) {
  const auto stages = static_cast<std::size_t>(map.stages);
  const std::vector<std::size_t> stage_of = stages_of_layers(slices, map);
  SplitAdvice advice;
  advice.measured.resize(stages);
  std::vector<double> all, now(stages, 0.0);
  for (const LayerSeconds& each : seconds) all.push_back(each.all());
  for (std::size_t l = 0; l < all.size(); ++l) {
    advice.measured[stage_of[l]] += seconds[l];
    now[stage_of[l]] += all[l];
  }
  for (const models::LayerRange& slice : slices)
    advice.layers_now.push_back(static_cast<int>(slice.end - slice.begin));
  const std::vector<double> slowness = slowness_of_stages(all, kinds_of_layers(architecture), slices, map);
  for (std::size_t l = 0; l < all.size(); ++l) all[l] /= slowness[stage_of[l]];
  const auto split = map.chunks == 1 ? fastest_split(all, slowness) : balance_slices(all, map, slowness);
  advice.seconds_then.assign(stages, 0.0);
  for (std::size_t k = 0; k < split.size(); ++k) {
    const auto stage = static_cast<std::size_t>(map.stage_of(static_cast<int>(k)));
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(split[k].begin),
               end = all.begin() + static_cast<std::ptrdiff_t>(split[k].end);
    advice.layers_then.push_back(static_cast<int>(end - begin));
    advice.seconds_then[stage] += slowness[stage] * std::accumulate(begin, end, 0.0);
  }
  // A pass covers 1/chunks of the layers, so there are as many times more passes.
  advice.row_seconds_now = row_seconds(now, microbatches * map.chunks);
  advice.row_seconds_then = row_seconds(advice.seconds_then, microbatches * map.chunks);
  return advice;
}

std::string describe(const SplitAdvice& advice, double step_now, double step_then) {
  std::vector<std::string> stages;
  for (const LayerSeconds& stage : advice.measured)
    stages.push_back(fmt::format("{:.4g} s ({:.3g} forward, {:.3g} backward, {:.3g} weights)", stage.all(),
                                 stage.forward, stage.backward, stage.weights));
  std::string text = fmt::format("rebalance: `layers_per_stage` {} computes {} per step and stage; ",
                                 fmt::join(advice.layers_now, ","), fmt::join(stages, ", "));
  if (!advice.helps()) return text + "no other split is more than 1 % faster";
  return text +
         fmt::format(
             "`layers_per_stage` {} would compute {:.4g} s; estimated step time {:.4g} s instead of {:.4g} s "
             "({:+.1f} %)",
             fmt::join(advice.layers_then, ","), fmt::join(advice.seconds_then, ", "), step_then, step_now,
             100 * (step_then / step_now - 1));
}

}  // namespace ranvier::actors

#include "models/core/architecture.hpp"

#include "runtime/base/error.hpp"

#include <algorithm>
#include <limits>
#include <unordered_map>

namespace ranvier::models {

std::vector<UnitSpec> Architecture::units() const {
  std::vector<UnitSpec> units;
  std::unordered_map<std::string, std::size_t> places;
  for (const auto& layer : layers) {
    for (const UnitSpec& unit : layer->units()) {
      const auto [known, is_new] = places.try_emplace(unit.name, units.size());
      if (is_new) {
        units.push_back(unit);
      } else {
        expect(units[known->second] == unit, "layer {} declares unit {} differently from an earlier layer",
               layer->name(), unit.name);
      }
    }
  }
  return units;
}

std::size_t Architecture::parameters() const { return parameters_of(units()); }

std::size_t Architecture::trained_parameters() const { return parameters_of(units(), true); }

std::size_t Architecture::first_trained_layer() const {
  const auto has = [](const std::unique_ptr<Layer>& layer, bool trained) {
    return std::any_of(layer->units().begin(), layer->units().end(),
                       [trained](const UnitSpec& unit) { return unit.trained == trained; });
  };
  if (std::none_of(layers.begin(), layers.end(), [&](const auto& layer) { return has(layer, false); })) return 0;
  const auto first =
      std::find_if(layers.begin(), layers.end(), [&](const auto& layer) { return has(layer, true); });
  return static_cast<std::size_t>(first - layers.begin());
}

double Architecture::flops_per_sample() const {
  double sum = 0;
  for (std::size_t l = 0; l < layers.size(); ++l) sum += flops_per_sample(l);
  return sum;
}

double Architecture::flops_per_sample(std::size_t layer) const {
  const double all = layers[layer]->flops_per_sample(positions);
  if (layer < first_trained_layer()) return all / 3;
  const auto trained = static_cast<double>(parameters_of(layers[layer]->units(), true));
  const auto whole = static_cast<double>(parameters_of(layers[layer]->units()));
  return trained == whole ? all : all * (2 + trained / whole) / 3;
}

std::vector<LayerRange> balance(const std::vector<double>& costs, int stages) {
  const std::size_t layers = costs.size();
  if (stages < 1 || static_cast<std::size_t>(stages) > layers) {
    fail(ErrorCode::usage, "{} layers cannot be split into {} stages; use at most one stage per layer", layers,
         stages);
  }

  // All comparisons are between values of this one expression, which is monotone in begin and end: rounding
  // cannot make the greedy cut below miss the bound that the search found.
  std::vector<double> before(layers + 1, 0.0);
  for (std::size_t i = 0; i < layers; ++i) before[i + 1] = before[i] + costs[i];
  const auto cost = [&](std::size_t begin, std::size_t end) { return before[end] - before[begin]; };

  // bound[end]: smallest possible maximum cost of the first `end` layers in `stage` + 1 ranges.
  std::vector<double> bound(layers + 1, std::numeric_limits<double>::infinity());
  for (std::size_t end = 1; end <= layers; ++end) bound[end] = cost(0, end);
  for (int stage = 1; stage < stages; ++stage) {
    std::vector<double> next(layers + 1, std::numeric_limits<double>::infinity());
    // With the start of the last range, `bound` rises and the range's cost falls. Their maximum is smallest where they
    // cross, on one side or the other. The crossing moves forward with `end`.
    auto crossing = static_cast<std::size_t>(stage);
    for (std::size_t end = static_cast<std::size_t>(stage) + 1; end <= layers; ++end) {
      while (crossing + 1 < end && bound[crossing] < cost(crossing, end)) ++crossing;
      next[end] = std::max(bound[crossing], cost(crossing, end));
      if (crossing > static_cast<std::size_t>(stage))
        next[end] = std::min(next[end], std::max(bound[crossing - 1], cost(crossing - 1, end)));
    }
    bound = std::move(next);
  }

  std::vector<LayerRange> ranges;
  std::size_t begin = 0;
  for (int stage = 0; stage < stages; ++stage) {
    const std::size_t last = layers - static_cast<std::size_t>(stages - 1 - stage);
    std::size_t end = begin + 1;
    while (end < last && cost(begin, end + 1) <= bound[layers]) ++end;
    ranges.push_back({begin, end});
    begin = end;
  }
  return ranges;
}

}  // namespace ranvier::models

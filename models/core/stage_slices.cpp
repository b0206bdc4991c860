#include "models/core/stage_slices.hpp"

#include "runtime/base/error.hpp"

#include <algorithm>
#include <string>
#include <unordered_map>

namespace ranvier::models {

StageSlices::StageSlices(const Architecture& architecture, std::vector<StageOptions> options,
                         runtime::MemoryPlan& plan) {
  expect(!options.empty(), "a rank has no slice of the model");
  StageOptions::Scratch most;
  for (std::size_t s = 0; s < options.size() && options.size() > 1; ++s) {
    options[s].slice = s;
    options[s].slices = options.size();
    const StageOptions::Scratch of_slice = StageLayout(architecture, options[s]).scratch();
    for (std::size_t StageOptions::Scratch::* const array :
         {&StageOptions::Scratch::area, &StageOptions::Scratch::deferred, &StageOptions::Scratch::between,
          &StageOptions::Scratch::workspace})
      most.*array = std::max(most.*array, of_slice.*array);
  }
  for (StageOptions& each : options) {
    each.scratch = most;
    slices_.push_back(
        std::make_unique<Stage>(architecture, each, plan, slices_.empty() ? nullptr : slices_.front().get()));
  }
  number_uses();
}

void StageSlices::number_uses() {
  std::unordered_map<std::string, std::size_t> known;  // units, by name
  for (std::size_t s = 0; s < slices_.size(); ++s) {
    first_layers_.push_back(layers_.size());
    for (std::size_t l = 0; l < slices_[s]->layers(); ++l) {
      const StageLayout::LayerMemoryMap& map = slices_[s]->layer(l);
      const std::size_t first_use = uses_.size();
      for (const UnitSpec& unit : map.layer->units()) {
        const auto [place, is_new] = known.try_emplace(unit.name, units_.size());
        if (is_new) units_.push_back(unit);
        uses_.push_back({layers_.size(), uses_.size() - first_use, place->second});
      }
      LayerUses& layer = layers_.emplace_back(LayerUses{s, map.parts});
      for (auto& of_kind : layer.parts) {
        for (auto& uses : of_kind) {
          for (std::size_t& use : uses) use += first_use;
        }
      }
    }
  }
}

void StageSlices::bind(const runtime::Arena& arena) {
  for (const auto& slice : slices_) slice->bind(arena);
}

bool StageSlices::defers() const noexcept {
  return std::any_of(slices_.begin(), slices_.end(), [](const auto& slice) { return slice->defers(); });
}

const StageLayout::LayerMemoryMap& StageSlices::layer(std::size_t layer) const {
  const std::size_t slice = layers_[layer].slice;
  return slices_[slice]->layer(layer - first_layers_[slice]);
}

std::vector<std::vector<std::size_t>> StageSlices::units_of_parts(PassStep::Kind kind) const {
  std::vector<std::vector<std::size_t>> units;
  for (const LayerUses& layer : layers_) {
    for (const auto& uses : layer.parts[static_cast<std::size_t>(kind)]) {
      auto& of_part = units.emplace_back();
      for (const std::size_t use : uses) of_part.push_back(uses_[use].unit);
    }
  }
  return units;
}

}  // namespace ranvier::models

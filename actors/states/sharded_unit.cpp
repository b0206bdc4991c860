#include "actors/states/sharded_unit.hpp"

#include "runtime/base/arithmetic.hpp"

#include <algorithm>
#include <map>
#include <string>

namespace ranvier::actors {

using collectives::Scope;

namespace {

std::size_t pieces(Scope scope, int ranks, int group_size) {
  return static_cast<std::size_t>(scope == Scope::none ? 1 : scope == Scope::group ? group_size : ranks);
}

}  // namespace

std::size_t padded_elements(const models::UnitSpec& unit, int ranks) {
  const auto multiple = static_cast<std::size_t>(ranks) * models::UnitSpec::alignment;
  return runtime::round_up(unit.elements(), multiple);
}

std::vector<ShardedUnit> sharded_units(const models::Architecture& architecture,
                                       const std::vector<models::LayerRange>& slices, int ranks) {
  std::vector<ShardedUnit> units;
  std::map<std::string, std::size_t> known;
  for (const models::LayerRange& layers : slices) {
    for (std::size_t l = layers.begin; l < layers.end; ++l) {
      for (const models::UnitSpec& unit : architecture.layers[l]->units()) {
        const auto [place, is_new] = known.emplace(unit.name, units.size());
        if (is_new) {
          units.push_back({.elements = padded_elements(unit, ranks), .trained = unit.trained});
        } else {
          ++units[place->second].uses;
        }
      }
    }
  }
  return units;
}

std::vector<ShardedUnit> sharded_units(const models::Architecture& architecture, models::LayerRange layers,
                                       int ranks) {
  return sharded_units(architecture, std::vector{layers}, ranks);
}

LargestUnits largest_units(const models::Architecture& architecture, int ranks) {
  LargestUnits largest;
  for (const models::UnitSpec& unit : architecture.units()) {
    const std::size_t elements = padded_elements(unit, ranks);
    largest.all = std::max(largest.all, elements);
    if (unit.trained) largest.trained = std::max(largest.trained, elements);
  }
  return largest;
}

bool separate_master(const models::Precision& precision, offload::TierKind parameters) {
  return precision.compute != runtime::DType::f32 || parameters != offload::TierKind::device;
}

Scope held_parameters(const collectives::Sharding& sharding, bool separate_master) {
  return separate_master ? sharding.parameters : std::min(sharding.parameters, sharding.optimizer);
}

bool are_in_place(bool trained, const UnitShardings& shardings, int ranks, int group_size,
                  const models::Precision& precision, offload::TierKind tier) {
  const bool apart = separate_master(precision, tier) || !trained;
  return tier == offload::TierKind::device &&
         pieces(held_parameters(shardings.of(trained), apart), ranks, group_size) == 1;
}

StateBytes state_bytes(std::span<const ShardedUnit> units, const UnitShardings& shardings, int ranks,
                       int group_size, const models::Precision& precision, offload::TierKind tier) {
  const bool separate = separate_master(precision, tier);
  const std::size_t optimizer_bytes = (separate ? 3 : 2) * sizeof(float);
  StateBytes bytes;
  for (const auto& [elements, uses, trained] : units) {
    const auto held = [&, elements = elements](Scope scope) { return elements / pieces(scope, ranks, group_size); };
    const collectives::Sharding& sharding = shardings.of(trained);
    std::size_t parameters = held(held_parameters(sharding, separate || !trained)) * size_of(precision.compute);
    if (sharding.secondary_parameters) parameters += held(Scope::group) * size_of(precision.compute);
    bytes.parameters += parameters;
    if (!trained) {
      bytes.frozen += parameters;
      continue;
    }
    bytes.gradients += held(sharding.gradients) * size_of(precision.gradient) * static_cast<std::size_t>(uses);
    bytes.optimizer += held(sharding.optimizer) * optimizer_bytes;
  }
  return bytes;
}

}  // namespace ranvier::actors

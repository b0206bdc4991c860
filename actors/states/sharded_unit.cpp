#include "actors/states/sharded_unit.hpp"

#include "runtime/base/arithmetic.hpp"
#include "runtime/kernels/block_codec.hpp"

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

std::size_t padded_elements(const models::UnitSpec& unit, int ranks, const TierOptions& tiers,
                            const collectives::WireTypes& wire) {
  static_assert(runtime::int8_block_elements % models::UnitSpec::alignment == 0 &&
                runtime::code_block_elements == runtime::int8_block_elements);
  const bool in_blocks = wire.in_blocks(unit.trained) || (unit.trained && runtime::is_in_blocks(tiers.moments) &&
                                                          tiers.arrays_of(unit.trained) > 1);
  const std::size_t of_shard = in_blocks ? runtime::int8_block_elements : models::UnitSpec::alignment;
  return runtime::round_up(unit.elements(), static_cast<std::size_t>(ranks) * of_shard);
}

ElementSet stored_elements(StateKind kind, const models::UnitSpec& unit, std::size_t elements,
                           const TierOptions& tiers) {
  if (kind != StateKind::v || tiers.rule != UpdateRule::muon || matrices_of(unit).empty()) return {};
  constexpr std::size_t block = runtime::int8_block_elements;
  std::vector<collectives::Range> ranges;
  for (std::size_t p = 0; p < unit.parameters.size(); ++p) {
    if (!unit.parameters[p].matrices.empty()) continue;
    const std::size_t begin = unit.offset(p) / block * block;
    const std::size_t end =
        std::min(elements, runtime::round_up(unit.offset(p) + unit.parameters[p].elements(), block));
    if (ranges.empty() || begin > ranges.back().begin + ranges.back().count) ranges.push_back({begin, 0});
    ranges.back().count = end - ranges.back().begin;
  }
  return ElementSet(std::move(ranges));
}

ShardedUnit sharded_unit(const models::UnitSpec& unit, std::size_t elements, const TierOptions& tiers) {
  ShardedUnit sharded{.elements = elements, .trained = unit.trained};
  if (tiers.rule == UpdateRule::muon) sharded.matrices = matrices_of(unit);
  sharded.second_moments = stored_elements(StateKind::v, unit, elements, tiers);
  return sharded;
}

std::vector<ShardedUnit> sharded_units(const models::Architecture& architecture,
                                       const std::vector<models::LayerRange>& slices, int ranks,
                                       const TierOptions& tiers, const collectives::WireTypes& wire) {
  std::vector<ShardedUnit> units;
  std::map<std::string, std::size_t> known;
  for (const models::LayerRange& layers : slices) {
    for (std::size_t l = layers.begin; l < layers.end; ++l) {
      for (const models::UnitSpec& unit : architecture.layers[l]->units()) {
        const auto [place, is_new] = known.emplace(unit.name, units.size());
        if (is_new) {
          units.push_back(sharded_unit(unit, padded_elements(unit, ranks, tiers, wire), tiers));
        } else {
          ++units[place->second].uses;
        }
      }
    }
  }
  return units;
}

LargestUnits largest_units(const models::Architecture& architecture, int ranks, const TierOptions& tiers,
                           const collectives::WireTypes& wire) {
  LargestUnits largest;
  for (const models::UnitSpec& unit : architecture.units()) {
    const std::size_t elements = padded_elements(unit, ranks, tiers, wire);
    largest.all = std::max(largest.all, elements);
    if (unit.trained) largest.trained = std::max(largest.trained, elements);
  }
  return largest;
}

bool separate_master(const models::Precision& precision, const TierOptions& tiers) {
  return precision.compute != tiers.master || tiers.parameters_of(true) != TierKind::device;
}

runtime::DType dtype_of(StateKind kind, const models::Precision& precision, const TierOptions& tiers) {
  switch (kind) {
    case StateKind::gradients:
      return precision.gradient;
    case StateKind::weights:
      return tiers.master;
    case StateKind::m:
      return tiers.moments;
    case StateKind::v:  // not negative
      return tiers.moments == runtime::DType::i8 ? runtime::DType::u8 : tiers.moments;
    case StateKind::parameters:
    case StateKind::secondary:
      break;
  }
  return precision.compute;
}

std::vector<StateShape> state_shapes(bool trained, const UnitShardings& shardings,
                                     const models::Precision& precision, const TierOptions& tiers) {
  const collectives::Sharding& sharding = shardings.of(trained);
  const bool separate = separate_master(precision, tiers);
  std::vector<StateShape> shapes;
  const auto add = [&](StateKind kind, Scope scope) {
    shapes.push_back({kind, scope, dtype_of(kind, precision, tiers)});
  };
  add(StateKind::parameters,
      separate || !trained ? sharding.parameters : std::min(sharding.parameters, sharding.optimizer));
  if (sharding.secondary_parameters) add(StateKind::secondary, Scope::group);
  if (!trained) return shapes;
  add(StateKind::gradients, sharding.gradients);
  for (std::size_t array = separate ? 0 : 1; array < tiers.arrays_of(trained); ++array)
    add(optimizer_states[array], sharding.optimizer);
  return shapes;
}

bool are_in_place(bool trained, const UnitShardings& shardings, int ranks, int group_size,
                  const models::Precision& precision, const TierOptions& tiers) {
  const auto shapes = state_shapes(trained, shardings, precision, tiers);
  return tiers.parameters_of(trained) == TierKind::device && pieces(shapes.front().scope, ranks, group_size) == 1;
}

StateBytes state_bytes(std::span<const ShardedUnit> units, const UnitShardings& shardings, int ranks,
                       int group_size, const models::Precision& precision, const TierOptions& tiers) {
  StateBytes bytes;
  for (const auto& [elements, uses, trained, matrices, second_moments] : units) {
    for (const auto& [kind, scope, dtype] : state_shapes(trained, shardings, precision, tiers)) {
      const std::size_t shard = elements / pieces(scope, ranks, group_size);
      const std::size_t held =
          runtime::bytes_of(dtype, kind == StateKind::v ? second_moments.most_in(shard) : shard);
      switch (kind) {
        case StateKind::parameters:
        case StateKind::secondary:
          bytes.parameters += held;
          if (!trained) bytes.frozen += held;
          break;
        case StateKind::gradients:
          bytes.gradients += held * static_cast<std::size_t>(uses);
          break;
        case StateKind::weights:
        case StateKind::m:
        case StateKind::v:
          bytes.optimizer += held;
      }
    }
  }
  return bytes;
}

std::vector<TierKind> optimizer_tiers(std::span<const ShardedUnit> units, const UnitShardings& shardings, int ranks,
                                      int group_size, const models::Precision& precision,
                                      const TierOptions& tiers) {
  std::vector<TierKind> chosen(units.size(), tiers.optimizer);
  std::size_t left = tiers.optimizer_budget;
  for (std::size_t u = 0; u < units.size(); ++u) {
    const std::size_t bytes =
        state_bytes(units.subspan(u, 1), shardings, ranks, group_size, precision, tiers).optimizer;
    if (bytes == 0 || bytes > left) continue;
    chosen[u] = TierKind::device;
    left -= bytes;
  }
  return chosen;
}

}  // namespace ranvier::actors

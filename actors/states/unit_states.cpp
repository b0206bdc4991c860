#include "actors/states/unit_states.hpp"

#include "actors/states/model_share.hpp"
#include "runtime/base/error.hpp"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace ranvier::actors {

using collectives::Range;
using runtime::MemoryKind;
using runtime::MemorySpace;

UnitStates::UnitStates(PlanContext& planner, const std::vector<models::UnitSpec>& architecture_units, bool trains)
    : precision_(planner.share.stage->precision()),
      trained_on_device_(planner.tiers.parameters_of(true) == TierKind::device),
      separate_master_(actors::separate_master(precision_, planner.tiers.parameters_of(true))),
      gradients_on_device_(planner.tiers.gradients == TierKind::device),
      optimizer_on_device_(planner.tiers.optimizer == TierKind::device),
      trains_(trains) {
  const models::StageSlices& stage = *planner.share.stage;
  const collectives::ShardLayout& layout = planner.share.column->layout;
  const auto add = [&](MemoryKind kind, const std::string& name, std::size_t bytes, std::size_t slots = 1) {
    return planner.memory.add({kind, MemorySpace::device, name, bytes, slots});
  };
  std::unordered_map<std::string_view, std::size_t> global_index;
  for (std::size_t u = 0; u < architecture_units.size(); ++u) global_index.emplace(architecture_units[u].name, u);
  std::vector<std::size_t> uses(stage.units().size());
  for (const models::Stage::UnitUse& use : stage.uses()) ++uses[use.unit];
  for (std::size_t u = 0; u < stage.units().size(); ++u) {
    UnitState state;
    state.spec = &stage.units()[u];
    state.global_index = global_index.at(state.spec->name);
    state.elements = padded_elements(*state.spec, layout.ranks());
    state.tier = planner.tiers.parameters_of(state.trained());
    const collectives::Sharding& sharding = planner.share.column->sharding.of(state.trained());
    const auto range = [&](collectives::Scope scope) { return layout.range(scope, state.elements); };
    if (state.trained()) {
      state.optimizer = range(sharding.optimizer);
      state.reduced = range(planner.share.flow.reduced);
    }
    const collectives::Scope passed = state.trained() ? sharding.optimizer : sharding.parameters;
    state.cut = BucketPartition(state.elements, layout.ranks(), planner.tiers.bucket_elements,
                                static_cast<std::size_t>(layout.ranks() / layout.pieces(passed)));
    const bool apart = separate_master_ || !state.trained();
    state.parameters = {.range = range(held_parameters(sharding, apart)), .dtype = precision_.compute};
    if (sharding.secondary_parameters) {
      state.secondary = UnitView{.range = range(collectives::Scope::group), .dtype = precision_.compute};
    }
    state.master = {.range = state.optimizer};
    for (std::size_t p = 0; p < state.spec->parameters.size(); ++p) {
      const models::ParameterSpec& parameter = state.spec->parameters[p];
      const std::size_t offset = state.spec->offset(p);
      const std::size_t elements = parameter.elements(), decayed = elements - parameter.undecayed_end;
      const auto add_segment = [&](std::size_t from, std::size_t to, bool decays) {
        const std::size_t begin = std::max(offset + from, state.optimizer.begin);
        const std::size_t end = std::min(offset + to, state.optimizer.begin + state.optimizer.count);
        if (begin < end)
          state.segments.push_back({begin - state.optimizer.begin, end - state.optimizer.begin, decays});
      };
      add_segment(0, decayed, parameter.decays);
      add_segment(decayed, elements, false);
    }
    state.gradients.assign(
        uses[u], {.range = state.trained() ? range(sharding.gradients) : Range(), .dtype = precision_.gradient});

    const std::string& name = state.spec->name;
    Ids ids;
    ids.parameters =
        add(MemoryKind::parameters, name + " parameters", state.on_device() ? state.parameters.bytes() : 0);
    ids.secondary = add(MemoryKind::parameters, name + " parameters for backward passes",
                        state.secondary && state.on_device() ? state.secondary->bytes() : 0);
    ids.gradients =
        add(MemoryKind::gradients, name + " gradients",
            trains_ && gradients_on_device_ ? state.gradients.front().bytes() : 0, state.gradients.size());
    ids.master = add(MemoryKind::optimizer, name + " master weights",
                     trains_ && separate_master_ && optimizer_on_device_ ? state.master.bytes() : 0);
    ids.moments = add(MemoryKind::optimizer, name + " moments",
                      trains_ && optimizer_on_device_ ? state.optimizer.count * sizeof(float) : 0, 2);
    units_.push_back(std::move(state));
    ids_.push_back(ids);
  }
}

std::vector<Range> stepped_ranges(const UnitState& unit) {
  const Range& whole = unit.optimizer;
  const Range& layers = unit.parameters.range;
  const std::size_t end = whole.begin + whole.count;
  const std::size_t from = std::clamp(layers.begin, whole.begin, end);
  const std::size_t to = std::clamp(layers.begin + layers.count, from, end);
  std::vector<Range> ranges;
  for (const auto& [first, last] : {std::pair{whole.begin, from}, {from, to}, {to, end}}) {
    if (first < last) ranges.push_back({first, last - first});
  }
  return ranges;
}

void UnitStates::bind(const runtime::Arena& arena) {
  for (std::size_t u = 0; u < units_.size(); ++u) {
    UnitState& unit = units_[u];
    if (unit.on_device()) {
      unit.parameters.data = arena.slot(ids_[u].parameters);
      if (unit.secondary) unit.secondary->data = arena.slot(ids_[u].secondary);
    }
    if (!unit.trained()) continue;
    if (!separate_master_) {
      unit.master.data = unit.parameters.at(unit.optimizer.begin);
    } else if (trains_ && optimizer_on_device_) {
      unit.master.data = arena.slot(ids_[u].master);
    }
    if (!trains_) continue;
    if (optimizer_on_device_) {
      unit.m = arena.slot_as<float>(ids_[u].moments, 0);
      unit.v = arena.slot_as<float>(ids_[u].moments, 1);
    }
    for (std::size_t use = 0; use < unit.gradients.size(); ++use) {
      if (gradients_on_device_) unit.gradients[use].data = arena.slot(ids_[u].gradients, use);
    }
  }
}

std::string UnitStates::names(std::span<const ChunkSchedule::Bucket> buckets) const {
  std::string names;
  for (const auto& [u, index] : buckets) {
    if (!names.empty()) names += ", ";
    names += units_[u].spec->name;
    if (units_[u].cut.buckets() > 1) names += fmt::format(" bucket {}", index);
  }
  return names;
}

bool UnitStates::gathers_parameters() const noexcept {
  return std::ranges::any_of(units_, [](const UnitState& unit) { return !unit.in_place(); });
}

bool UnitStates::gathers_trained() const noexcept {
  return std::ranges::any_of(units_, [](const UnitState& unit) { return unit.trained() && !unit.in_place(); });
}

bool UnitStates::shards_gradients() const noexcept {
  return std::ranges::any_of(
      units_, [](const UnitState& unit) { return unit.trained() && !unit.gradients.front().whole(unit.elements); });
}

}  // namespace ranvier::actors

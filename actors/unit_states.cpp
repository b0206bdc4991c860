#include "actors/unit_states.hpp"

#include "runtime/error.hpp"

#include <algorithm>

namespace ranvier::actors {

using runtime::MemoryKind;
using runtime::MemorySpace;

UnitStates::UnitStates(const models::Stage& stage, const std::vector<models::UnitSpec>& architecture_units,
                       int g_data, const models::Precision& precision, runtime::MemoryPlan& plan)
    : precision_(precision) {
  const bool separate_master = precision.compute != runtime::DType::f32;
  const auto add = [&](MemoryKind kind, const std::string& name, std::size_t bytes, std::size_t slots = 1) {
    return plan.add({kind, MemorySpace::device, name, bytes, slots});
  };
  for (std::size_t u = 0; u < stage.units().size(); ++u) {
    UnitState state;
    state.spec = &stage.units()[u];
    const auto global = std::find_if(architecture_units.begin(), architecture_units.end(),
                                     [&](const models::UnitSpec& unit) { return unit.name == state.spec->name; });
    state.global_index = static_cast<std::size_t>(global - architecture_units.begin());
    const auto piece_multiple = static_cast<std::size_t>(g_data) * models::UnitSpec::alignment;
    state.elements = (state.spec->elements() + piece_multiple - 1) / piece_multiple * piece_multiple;
    for (std::size_t p = 0; p < state.spec->parameters.size(); ++p) {
      const models::ParameterSpec& parameter = state.spec->parameters[p];
      const std::size_t begin = state.spec->offset(p);
      state.segments.push_back({begin, begin + parameter.elements(), parameter.decays});
    }
    const auto uses = std::count_if(stage.uses().begin(), stage.uses().end(),
                                    [&](const models::Stage::UnitUse& use) { return use.unit == u; });
    state.gradients.resize(static_cast<std::size_t>(uses));

    const std::string& name = state.spec->name;
    Places places;
    places.working = add(MemoryKind::parameters, name + " parameters",
                         state.elements * runtime::size_of(precision.compute));
    places.gradients = add(MemoryKind::gradients, name + " gradients",
                           state.elements * runtime::size_of(precision.gradient), state.gradients.size());
    places.master = add(MemoryKind::optimizer, name + " master weights",
                        separate_master ? state.elements * sizeof(float) : 0);
    places.moments = add(MemoryKind::optimizer, name + " moments", state.elements * sizeof(float), 2);
    units_.push_back(std::move(state));
    places_.push_back(places);
  }
}

void UnitStates::bind(const runtime::Arena& arena, models::Stage& stage) {
  std::vector<const std::byte*> parameters;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    UnitState& unit = units_[u];
    unit.working = arena.slot(places_[u].working);
    unit.master = precision_.compute == runtime::DType::f32 ? reinterpret_cast<float*>(unit.working)
                                                            : arena.slot_as<float>(places_[u].master);
    unit.m = arena.slot_as<float>(places_[u].moments, 0);
    unit.v = arena.slot_as<float>(places_[u].moments, 1);
    for (std::size_t use = 0; use < unit.gradients.size(); ++use) {
      unit.gradients[use] = arena.slot(places_[u].gradients, use);
    }
    parameters.push_back(unit.working);
  }
  std::vector<std::byte*> gradients;
  std::vector<std::size_t> seen(units_.size(), 0);
  for (const models::Stage::UnitUse& use : stage.uses()) gradients.push_back(units_[use.unit].gradients[seen[use.unit]++]);
  stage.bind(arena, parameters, gradients);
}

}  // namespace ranvier::actors

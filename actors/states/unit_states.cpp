#include "actors/states/unit_states.hpp"

#include "actors/states/model_share.hpp"
#include "runtime/base/error.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace ranvier::actors {

using collectives::Range;
using runtime::MemoryKind;
using runtime::MemorySpace;

namespace {

/// Adds the segments of all parameters in the optimizer's range.
void add_segments(UnitState& unit) {
  for (std::size_t p = 0; p < unit.spec->parameters.size(); ++p) {
    const models::ParameterSpec& parameter = unit.spec->parameters[p];
    const std::size_t offset = unit.spec->offset(p);
    const std::size_t elements = parameter.elements(), decayed = elements - parameter.undecayed_end;
    const bool by_muon = std::ranges::find(unit.matrices, p, &UnitMatrix::parameter) != unit.matrices.end();
    auto& segments = by_muon ? unit.matrix_segments : unit.segments;
    const auto add_segment = [&](std::size_t from, std::size_t to, bool decays) {
      const std::size_t begin = std::max(offset + from, unit.optimizer.begin);
      const std::size_t end = std::min(offset + to, unit.optimizer.begin + unit.optimizer.count);
      if (begin < end) segments.push_back({begin - unit.optimizer.begin, end - unit.optimizer.begin, decays});
    };
    add_segment(0, decayed, parameter.decays);
    add_segment(decayed, elements, false);
  }
}

/// Plans memory for the views that are on the device.
void plan_views(PlanContext& planner, UnitState& unit, bool trains, bool separate_master) {
  const std::string& name = unit.spec->name;
  const auto plan = [&](MemoryKind kind, const std::string& array, bool here, const std::vector<UnitView*>& views) {
    const std::size_t bytes = views.front()->planned_bytes();
    if (!here || bytes == 0) return;
    const runtime::MemoryId memory =
        planner.memory.add({kind, MemorySpace::device, name + array, bytes, views.size()});
    for (std::size_t v = 0; v < views.size(); ++v) {
      views[v]->memory = memory;
      views[v]->slot = v;
    }
  };
  const bool optimizer_here = trains && unit.optimizer_on_device();
  std::vector<UnitView*> gradients;
  for (UnitView& of_use : unit.gradients) gradients.push_back(&of_use);
  plan(MemoryKind::parameters, " parameters", unit.on_device(), {&unit.parameters});
  if (unit.secondary)
    plan(MemoryKind::parameters, " parameters for backward passes", unit.secondary_tier == TierKind::device,
         {&*unit.secondary});
  plan(MemoryKind::gradients, " gradients", trains && planner.tiers.gradients == TierKind::device, gradients);
  plan(MemoryKind::optimizer, " master weights", optimizer_here && separate_master, {&unit.master});
  if (unit.v.planned_bytes() == unit.m.planned_bytes()) {
    plan(MemoryKind::optimizer, " moments", optimizer_here, {&unit.m, &unit.v});
  } else {
    plan(MemoryKind::optimizer, " moments", optimizer_here, {&unit.m});
    plan(MemoryKind::optimizer, " second moments", optimizer_here, {&unit.v});
  }
}

}  // namespace

UnitStates::UnitStates(PlanContext& planner, const std::vector<models::UnitSpec>& architecture_units, bool trains)
    : precision_(planner.share.stage->precision()),
      rule_(planner.tiers.rule),
      trained_on_device_(planner.tiers.parameters_of(true) == TierKind::device),
      separate_master_(actors::separate_master(precision_, planner.tiers)) {
  const models::StageSlices& stage = *planner.share.stage;
  const collectives::ShardLayout& layout = planner.share.column->layout;
  std::unordered_map<std::string_view, std::size_t> global_index;
  for (std::size_t u = 0; u < architecture_units.size(); ++u) global_index.emplace(architecture_units[u].name, u);
  std::vector<ShardedUnit> sharded;
  for (const models::UnitSpec& unit : stage.units())
    sharded.push_back(sharded_unit(
        unit, padded_elements(unit, layout.ranks(), planner.tiers, planner.share.column->wire), planner.tiers));
  const std::vector<TierKind> optimizer_tier = optimizer_tiers(
      sharded, planner.share.column->sharding, layout.ranks(), layout.group_size(), precision_, planner.tiers);
  std::vector<std::size_t> uses(stage.units().size());
  for (const models::StageSlices::UnitUse& use : stage.uses()) ++uses[use.unit];
  for (std::size_t u = 0; u < stage.units().size(); ++u) {
    UnitState state;
    state.spec = &stage.units()[u];
    state.global_index = global_index.at(state.spec->name);
    state.elements = sharded[u].elements;
    state.tier = planner.tiers.parameters_of(state.trained());
    state.secondary_tier = planner.tiers.secondary_of(state.trained());
    state.optimizer_tier = optimizer_tier[u];
    const collectives::Sharding& sharding = planner.share.column->sharding.of(state.trained());
    const auto range = [&](collectives::Scope scope) { return layout.range(scope, state.elements); };
    if (state.trained()) {
      state.optimizer = state.master.range = range(sharding.optimizer);
      state.reduced = range(planner.share.flow.reduced);
    }
    const collectives::Scope passed = state.trained() ? sharding.optimizer : sharding.parameters;
    state.cut = BucketPartition(state.elements, layout.ranks(), planner.tiers.bucket_elements,
                                static_cast<std::size_t>(layout.ranks() / layout.pieces(passed)));
    state.gradients.assign(uses[u], {.dtype = precision_.gradient});
    state.master.dtype = planner.tiers.master;
    for (const auto& [kind, scope, dtype] :
         state_shapes(state.trained(), planner.share.column->sharding, precision_, planner.tiers)) {
      const UnitView view{.range = range(scope), .dtype = dtype};
      if (kind == StateKind::secondary) {
        state.secondary = view;
      } else if (kind == StateKind::gradients) {
        state.gradients.assign(uses[u], view);
      } else {
        state.view(kind) = view;
      }
    }
    state.v.stored = sharded[u].second_moments;
    state.matrices = sharded[u].matrices;
    add_segments(state);
    plan_views(planner, state, trains, separate_master_);
    units_.push_back(std::move(state));
  }
  assign_owners(units_, layout.ranks());
}

const UnitView& UnitState::view(StateKind kind) const {
  const std::array<const UnitView*, 6> views{&parameters, nullptr, &master, &m, &v, nullptr};  // by kind
  const UnitView* const view = views.at(static_cast<std::size_t>(kind));
  expect(view != nullptr, "{} has no single view of its {}", spec->name, to_string(kind));
  return *view;
}

UnitView& UnitState::view(StateKind kind) { return const_cast<UnitView&>(std::as_const(*this).view(kind)); }

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
  const auto bind = [&arena](UnitView& view) {
    if (view.memory) view.data = arena.slot(*view.memory, view.slot);
  };
  for (UnitState& unit : units_) {
    for (UnitView* view : {&unit.parameters, &unit.master, &unit.m, &unit.v}) bind(*view);
    if (unit.secondary) bind(*unit.secondary);
    for (UnitView& of_use : unit.gradients) bind(of_use);
    if (unit.trained() && !separate_master_) unit.master.data = unit.parameters.at(unit.optimizer.begin);
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

std::size_t UnitStates::optimizers_on_device() const noexcept {
  return static_cast<std::size_t>(std::ranges::count_if(
      units_, [](const UnitState& unit) { return unit.trained() && unit.optimizer_on_device(); }));
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

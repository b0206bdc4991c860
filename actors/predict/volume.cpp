#include "actors/predict/volume.hpp"

#include "actors/schedule/slice_order.hpp"
#include "collectives/communicators/quantized_communicator.hpp"
#include "collectives/plans/cost.hpp"
#include "collectives/plans/traffic.hpp"
#include "models/core/pass_order.hpp"
#include "runtime/base/error.hpp"

#include <algorithm>
#include <utility>

namespace ranvier::actors {

using collectives::Collective;
using collectives::Hop;
using collectives::Scope;
using collectives::Team;
using collectives::TeamKind;

namespace {

std::size_t index_of(TeamKind kind) { return static_cast<std::size_t>(kind); }

}  // namespace

std::vector<UnitTraffic> moves_of(std::span<const ShardedUnit> units, std::uint64_t micro_steps) {
  std::vector<UnitTraffic> moves;
  for (const ShardedUnit& unit : units) {
    const std::uint64_t times = micro_steps * static_cast<std::uint64_t>(unit.uses);
    moves.push_back({unit.elements, times, times, unit.trained ? times : 0, unit.trained, unit.matrices});
  }
  return moves;
}

std::vector<UnitTraffic> replayed_moves(const RankPlan& plan, int stage_number, std::span<const ShardedUnit> units,
                                        const BufferClasses& places) {
  const models::StageSlices& stage = *plan.stage;
  const int stages = plan.options.grid.g_inter, microbatches = microbatches_of(plan.options);
  expect(units.size() == stage.units().size(), "a stage of {} units got {}", stage.units().size(), units.size());
  std::vector<UnitTraffic> moves = moves_of(units, static_cast<std::uint64_t>(microbatches));
  for (UnitTraffic& unit : moves) unit.forward_gathers = unit.backward_gathers = 0;
  BufferSchedule schedule(places);
  std::uint64_t need = 0;
  const auto run = [&](const models::StageLayout::Pass& steps, bool backward) {
    for (const models::StageLayout::PassStep& step : steps) {
      if (!step.needs_parameters()) continue;
      for (const std::size_t use : stage.uses_of(step)) {
        const std::size_t unit = stage.uses()[use].unit;
        if (places.places[places.of_unit[unit]] == 0) continue;  // not gathered
        if (!schedule.next(unit, need, plan.options.reuse).fill) continue;
        ++(backward ? moves[unit].backward_gathers : moves[unit].forward_gathers);
      }
      ++need;
    }
  };
  const models::StageLayout& front = stage.slice(0);
  const bool waits = front.defers() && stage.size() == 1;  // separate weight passes; several slices: 1F1B
  PipelineProgress progress{.stage = stage_number,
                            .stages = stages,
                            .chunks = static_cast<int>(stage.size()),
                            .microbatches = microbatches,
                            .limit = front.slots(),
                            .deferred_limit = waits ? front.deferred_slots() : 0};
  const Policy policy = !messages_decide(plan.policy) ? plan.policy : waits ? Policy::zb_h1 : Policy::one_f_one_b;
  const SliceOrder order{progress.chunks, microbatches, chunk_group(policy, stages, front.slots())};
  models::OrderedPass pass;
  // Microbatches whose weight gradients were finished when the previous pass started: the next one is announced then.
  int weights_before = 0, weights_now = 0;
  std::vector<int> backwards(stage.size(), 0);  // by slice
  std::vector<std::vector<int>> kept;           // by slice and deferred buffer
  for (std::size_t s = 0; s < stage.size(); ++s)
    kept.emplace_back(static_cast<std::size_t>(stage.slice(s).deferred_slots()), -1);
  while (progress.backwards < order.passes()) {
    progress.forward_ready =
        progress.forwards < order.passes() && (!waits || progress.forwards - progress.weights < front.slots());
    progress.backward_ready = progress.backwards < progress.forwards &&
                              (!waits || progress.backwards - progress.weights < front.deferred_slots());
    progress.weights_ready = progress.weights < progress.backwards;
    const Direction direction = next_direction(policy, progress);
    expect(direction != Direction::none, "no pass can follow {} forward and {} backward ones", progress.forwards,
           progress.backwards);
    if (direction == Direction::weights) {
      ++progress.weights;
      continue;
    }
    weights_before = std::exchange(weights_now, progress.weights);
    const bool forward = direction == Direction::forward;
    const auto [chunk, microbatch] = order.at(forward, forward ? progress.forwards++ : progress.backwards++);
    const auto slice = static_cast<std::size_t>(chunk);
    const models::StageLayout& layout = stage.slice(slice);
    const int slot = microbatch % layout.slots();
    if (layout.defers()) {
      int& place = kept[slice][static_cast<std::size_t>(microbatch % layout.deferred_slots())];
      const int done = waits ? weights_before : backwards[slice];
      if (forward && microbatch - done < layout.deferred_slots()) place = microbatch;
      pass.area = {};
      if (place == microbatch) pass.area.holds = {slot, layout.segments().size() - 1, layout.slice()};
    }
    if (!forward) ++backwards[slice];
    pass = forward ? models::forward_pass(layout, slot) : models::backward_pass(layout, slot, pass.area);
    run(pass.steps, !forward);
  }
  return moves;
}

SentVolume& SentVolume::operator+=(const SentVolume& other) noexcept {
  elements += other.elements;
  bytes += other.bytes;
  return *this;
}

void PhaseVolume::add(const PhaseVolume& other, std::uint64_t times) noexcept {
  for (SentVolume PhaseVolume::* const sent : {&PhaseVolume::intra_node, &PhaseVolume::inter_node})
    this->*sent += {times * (other.*sent).elements, times * (other.*sent).bytes};
  seconds += static_cast<double>(times) * other.seconds;
}

PhaseVolume Volume::total() const noexcept {
  PhaseVolume sum = forward;
  sum.add(backward);
  sum.add(update);
  return sum;
}

VolumeCounter::VolumeCounter(VolumeOptions options)
    : options_(std::move(options)),
      layout_(options_.node_of_row.empty() ? options_.node_of : options_.node_of_row, options_.group_size, 0),
      gather_codes_(codes_of(options_.wire.gather)),
      reduce_codes_(codes_of(options_.wire.reduce)) {
  const auto& rows = options_.node_of_row.empty() ? options_.node_of : options_.node_of_row;
  expect(rows.size() == options_.node_of.size(), "a column of {} ranks is laid out as {}", options_.node_of.size(),
         rows.size());
  for (int kind = 0; kind < collectives::team_kinds; ++kind) {
    teams_.push_back(teams_of(rows, options_.group_size, static_cast<TeamKind>(kind)));
    for (Team& team : teams_.back()) {
      for (std::size_t m = 0; m < team.members.size(); ++m) {
        team.topology.node_of[m] = options_.node_of[static_cast<std::size_t>(team.members[m])];
      }
    }
  }
}

VolumeCounter::Codes VolumeCounter::codes_of(const collectives::WireTypes::Links& links) const {
  Codes codes;
  for (int kind = 0; kind < collectives::team_kinds; ++kind) {
    const auto team = static_cast<TeamKind>(kind);
    codes[index_of(team)] = collectives::block_code(layout_.wire_type(team, links));
  }
  return codes;
}

Volume VolumeCounter::count(std::span<const UnitTraffic> units, const UnitShardings& shardings) {
  const collectives::ShardFlow of_trained = layout_.flow(shardings.trained, options_.wire);
  const collectives::ShardFlow of_frozen = layout_.flow(shardings.frozen, options_.wire);
  const auto [compute, gradient] = options_.precision;
  Volume volume;
  std::vector<UnitTraffic> owned(units.begin(), units.end());
  assign_owners(owned, layout_.ranks());
  for (const UnitTraffic& unit : owned) {
    const collectives::ShardFlow& flow = unit.trained ? of_trained : of_frozen;
    const auto gathered = [&, compute = compute](const std::vector<Hop>& hops) -> PhaseVolume {
      // Nothing is gathered if layers read the parameters in place.
      if (are_in_place(unit.trained, shardings, layout_.ranks(), layout_.group_size(), options_.precision,
                       options_.tiers))
        return {};
      return options_.pulls ? pulled(hops, unit.elements, compute)
                            : of(hops, unit.elements, compute, gather_codes_);
    };
    const bool kept = !unit.trained && shardings.frozen.secondary_parameters;  // UnitState::keeps_secondary()
    volume.forward.add(gathered(kept ? flow.gather_backward : flow.gather_forward), unit.forward_gathers);
    volume.backward.add(gathered(flow.gather_backward), unit.backward_gathers);
    if (!unit.trained) continue;
    volume.backward.add(of(flow.reduce_microbatch, unit.elements, gradient, reduce_codes_), unit.reductions);
    volume.update.add(of(flow.reduce_batch, unit.elements, gradient, reduce_codes_));
    volume.update.add(of(flow.gather_gradient, unit.elements, gradient, reduce_codes_));
    volume.update.add(of(flow.refresh, unit.elements, compute, gather_codes_));
    if (!unit.matrices.empty()) volume.matrices.add(exchanged(unit, shardings.trained.optimizer));
  }
  volume.update.add(volume.matrices);
  return volume;
}

PhaseVolume VolumeCounter::of(std::span<const Hop> hops, std::size_t unit_elements, runtime::DType dtype,
                              const Codes& codes) {
  PhaseVolume sum;
  for (const Hop& hop : hops) {
    const std::size_t elements = layout_.range(hop.whole, unit_elements).count;
    const auto code = codes[index_of(hop.team)];
    const auto [place, is_new] = known_.try_emplace({hop.collective, hop.team, elements, dtype, code});
    PhaseVolume& volume = place->second;
    const collectives::OperationShape shape{.collective = hop.collective, .parts = {elements}, .dtype = dtype};
    if (is_new && !code) volume = of(hop.team, shape);
    if (is_new && code) {
      for (const auto& packed : collectives::QuantizedCommunicator::packed_shapes(shape, *code))
        volume.add(of(hop.team, packed));
      for (SentVolume* const sent : {&volume.intra_node, &volume.inter_node})
        sent->elements = sent->bytes / runtime::code_block_bytes(*code) * runtime::code_block_elements;
    }
    sum.add(volume);
  }
  return sum;
}

PhaseVolume VolumeCounter::of(TeamKind kind, const collectives::OperationShape& shape) const {
  const collectives::PlanChoice& choice = options_.algorithms[index_of(kind)];
  const auto& teams = teams_[index_of(kind)];
  PhaseVolume volume;
  for (const Team& team : teams) {
    const collectives::Traffic traffic = collectives::traffic_of(team, choice, shape);
    volume.intra_node += {traffic.intra_node, traffic.intra_node * size_of(shape.dtype)};
    volume.inter_node += {traffic.inter_node, traffic.inter_node * size_of(shape.dtype)};
  }
  volume.seconds = seconds_together(teams, options_.node_of, choice.algorithm_of(shape.collective), choice,
                                    shape.parts[0], shape.dtype, options_.links);
  return volume;
}

PhaseVolume VolumeCounter::pulled(std::span<const Hop> hops, std::size_t unit_elements, runtime::DType dtype) {
  if (hops.empty()) return {};
  // Pulled shards come directly from their owners, regardless of the teams of the collectives.
  const bool of_column = std::ranges::any_of(hops, [](const Hop& hop) { return hop.piece == Scope::global; });
  const TeamKind kind = of_column ? TeamKind::column : TeamKind::group;
  const auto [place, is_new] = known_.try_emplace({std::nullopt, kind, unit_elements, dtype, std::nullopt});
  PhaseVolume& volume = place->second;
  if (!is_new) return volume;
  const std::size_t piece = layout_.range(of_column ? Scope::global : Scope::group, unit_elements).count;
  collectives::Plan plan{.name = "pulls", .elements = unit_elements, .ranks = {}};
  plan.ranks.resize(options_.node_of.size(), std::vector<collectives::Step>(1));
  for (const Team& team : teams_[index_of(kind)]) {
    for (const int owner : team.members) {
      for (const int other : team.members) {
        if (owner == other) continue;
        using collectives::Action;
        plan.ranks[static_cast<std::size_t>(owner)][0].push_back({Action::send, other, {0, piece}});
        plan.ranks[static_cast<std::size_t>(other)][0].push_back({Action::receive, owner, {0, piece}});
      }
    }
  }
  volume = of(plan, dtype);
  return volume;
}

PhaseVolume VolumeCounter::of(const collectives::Plan& plan, runtime::DType dtype) const {
  const collectives::Topology column{static_cast<int>(options_.node_of.size()), 1, options_.node_of};
  const collectives::Traffic traffic = collectives::traffic_of(plan, column);
  return {
      .intra_node = {traffic.intra_node, traffic.intra_node * size_of(dtype)},
      .inter_node = {traffic.inter_node, traffic.inter_node * size_of(dtype)},
      .seconds = collectives::seconds(plan, column, {.links = options_.links, .element_bytes = size_of(dtype)})};
}

PhaseVolume VolumeCounter::exchanged(const UnitTraffic& unit, Scope scope) {
  using collectives::Action;
  collectives::Plan plan{.name = "updates of matrices", .elements = unit.elements, .ranks = {}};
  plan.ranks.resize(options_.node_of.size(), std::vector<collectives::Step>(2));  // to the owners and back
  for (const UnitMatrix& matrix : unit.matrices) {
    auto& of_owner = plan.ranks[static_cast<std::size_t>(matrix.owner)];
    for (int other = 0; other < layout_.ranks(); ++other) {
      const collectives::Range range = matrix.range.common(layout_.range(scope, unit.elements, other));
      if (other == matrix.owner || range.count == 0) continue;
      auto& of_other = plan.ranks[static_cast<std::size_t>(other)];
      if (layout_.share_copy(scope, matrix.owner, other)) {
        of_other[0].push_back({Action::send, matrix.owner, range});
        of_owner[0].push_back({Action::receive, other, range});
      }
      of_owner[1].push_back({Action::send, other, range});
      of_other[1].push_back({Action::receive, matrix.owner, range});
    }
  }
  return of(plan, runtime::DType::f32);
}

}  // namespace ranvier::actors

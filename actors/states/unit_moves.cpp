#include "actors/states/unit_moves.hpp"

#include "models/pass_order.hpp"
#include "runtime/error.hpp"

namespace ranvier::actors {

std::vector<UnitMoves> moves_of(std::span<const ShardedUnit> units, std::uint64_t micro_steps) {
  std::vector<UnitMoves> moves;
  for (const ShardedUnit& unit : units) {
    const std::uint64_t times = micro_steps * static_cast<std::uint64_t>(unit.uses);
    moves.push_back({unit.elements, times, times, unit.trained ? times : 0, unit.trained});
  }
  return moves;
}

std::vector<UnitMoves> replayed_moves(const models::StageLayout& layout, std::span<const ShardedUnit> units,
                                      const PlaceClasses& places, const BatchPasses& passes) {
  expect(units.size() == layout.units().size(), "a stage of {} units got {}", layout.units().size(), units.size());
  std::vector<UnitMoves> moves = moves_of(units, static_cast<std::uint64_t>(passes.microbatches));
  for (UnitMoves& unit : moves) unit.forward_gathers = unit.backward_gathers = 0;
  PlaceSchedule schedule(places);
  std::uint64_t need = 0;
  const auto run = [&](const models::StageLayout::Pass& steps, bool backward) {
    for (const models::StageLayout::Step& step : steps) {
      if (!step.needs_parameters()) continue;
      for (const std::size_t use : layout.uses_of(step)) {
        const std::size_t unit = layout.uses()[use].unit;
        if (places.places[places.of_unit[unit]] == 0) continue;  // not gathered
        if (!schedule.next(unit, need, passes.reuse).fill) continue;
        ++(backward ? moves[unit].backward_gathers : moves[unit].forward_gathers);
      }
      ++need;
    }
  };
  PipelineProgress progress{
      .stage = passes.stage, .stages = passes.stages, .microbatches = passes.microbatches, .limit = layout.slots()};
  const Policy policy = passes.policy == Policy::message_driven ? Policy::one_f_one_b : passes.policy;
  models::OrderedPass pass;
  while (progress.backwards < progress.microbatches) {
    progress.forward_ready = progress.forwards < progress.microbatches;
    progress.backward_ready = progress.backwards < progress.forwards;
    const Direction direction = next_direction(policy, progress);
    expect(direction != Direction::none, "no pass can follow {} forward and {} backward ones", progress.forwards,
           progress.backwards);
    if (direction == Direction::forward) {
      pass = models::forward_pass(layout, progress.forwards++ % layout.slots());
    } else {
      pass = models::backward_pass(layout, progress.backwards++ % layout.slots(), pass.area);
    }
    run(pass.steps, direction == Direction::backward);
  }
  return moves;
}

}  // namespace ranvier::actors

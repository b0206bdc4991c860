#include "actors/states/unit_moves.hpp"

#include "runtime/error.hpp"

namespace ranvier::actors {

std::vector<UnitMoves> moves_of(std::span<const ShardedUnit> units, std::uint64_t micro_steps) {
  std::vector<UnitMoves> moves;
  for (const ShardedUnit& unit : units) {
    const std::uint64_t times = micro_steps * static_cast<std::uint64_t>(unit.uses);
    moves.push_back({unit.elements, times, times, times});
  }
  return moves;
}

std::vector<UnitMoves> replayed_moves(models::Stage& stage, std::span<const ShardedUnit> units,
                                      const SlotClasses& places, const PassOrder& order) {
  expect(units.size() == stage.units().size(), "a stage of {} units got {}", stage.units().size(), units.size());
  std::vector<UnitMoves> moves = moves_of(units, static_cast<std::uint64_t>(order.microbatches));
  for (UnitMoves& unit : moves) unit.forward_gathers = unit.backward_gathers = 0;
  SlotSchedule schedule(places);
  std::uint64_t need = 0;
  const auto run = [&](const models::Stage::Pass& pass, bool backward) {
    for (const models::Stage::Step& step : pass) {
      if (!step.needs_parameters()) continue;
      for (const std::size_t use : stage.uses_of(step)) {
        const std::size_t unit = stage.uses()[use].unit;
        if (!schedule.next(unit, need, order.reuse).fill) continue;
        ++(backward ? moves[unit].backward_gathers : moves[unit].forward_gathers);
      }
      ++need;
    }
  };
  PipelineProgress progress{
      .stage = order.stage, .stages = order.stages, .microbatches = order.microbatches, .limit = stage.slots()};
  const Policy policy = order.policy == Policy::message_driven ? Policy::one_f_one_b : order.policy;
  while (progress.backwards < progress.microbatches) {
    progress.forward_ready = progress.forwards < progress.microbatches;
    progress.backward_ready = progress.backwards < progress.forwards;
    const Direction direction = next_direction(policy, progress);
    expect(direction != Direction::none, "no pass can follow {} forward and {} backward ones", progress.forwards,
           progress.backwards);
    if (direction == Direction::forward) {
      run(stage.forward_pass(progress.forwards++ % stage.slots()), false);
    } else {
      run(stage.backward_pass(progress.backwards++ % stage.slots()), true);
    }
  }
  return moves;
}

}  // namespace ranvier::actors

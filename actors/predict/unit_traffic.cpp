#include "actors/predict/unit_traffic.hpp"

#include "actors/schedule/slice_order.hpp"
#include "models/core/pass_order.hpp"
#include "runtime/base/error.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace ranvier::actors {

namespace {

/// Fixed order that approximates a message-driven schedule.
Policy in_a_fixed_order(const models::StageSlices& stage) {
  return stage.defers() && stage.size() == 1 ? Policy::zb_h1 : Policy::one_f_one_b;
}

}  // namespace

std::vector<UnitTraffic> moves_of(std::span<const ShardedUnit> units, std::uint64_t micro_steps) {
  std::vector<UnitTraffic> moves;
  for (const ShardedUnit& unit : units) {
    const std::uint64_t times = micro_steps * static_cast<std::uint64_t>(unit.uses);
    moves.push_back({unit.elements, times, times, unit.trained ? times : 0, unit.trained});
  }
  return moves;
}

std::vector<UnitTraffic> replayed_moves(const models::StageSlices& stage, std::span<const ShardedUnit> units,
                                        const BufferClasses& places, const BatchPasses& passes) {
  expect(units.size() == stage.units().size(), "a stage of {} units got {}", stage.units().size(), units.size());
  std::vector<UnitTraffic> moves = moves_of(units, static_cast<std::uint64_t>(passes.microbatches));
  for (UnitTraffic& unit : moves) unit.forward_gathers = unit.backward_gathers = 0;
  BufferSchedule schedule(places);
  std::uint64_t need = 0;
  const auto run = [&](const models::StageLayout::Pass& steps, bool backward) {
    for (const models::StageLayout::PassStep& step : steps) {
      if (!step.needs_parameters()) continue;
      for (const std::size_t use : stage.uses_of(step)) {
        const std::size_t unit = stage.uses()[use].unit;
        if (places.places[places.of_unit[unit]] == 0) continue;  // not gathered
        if (!schedule.next(unit, need, passes.reuse).fill) continue;
        ++(backward ? moves[unit].backward_gathers : moves[unit].forward_gathers);
      }
      ++need;
    }
  };
  const models::StageLayout& front = stage.slice(0);
  const bool waits = front.defers() && stage.size() == 1;  // separate weight passes; several slices: 1F1B
  PipelineProgress progress{.stage = passes.stage,
                            .stages = passes.stages,
                            .chunks = static_cast<int>(stage.size()),
                            .microbatches = passes.microbatches,
                            .limit = front.slots(),
                            .deferred_limit = waits ? front.deferred_slots() : 0};
  const Policy policy = messages_decide(passes.policy) ? in_a_fixed_order(stage) : passes.policy;
  const SliceOrder order{progress.chunks, passes.microbatches, chunk_group(policy, passes.stages, front.slots())};
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

}  // namespace ranvier::actors

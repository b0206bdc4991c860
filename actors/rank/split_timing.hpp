// Times layers in the steps after the first (TrainerOptions::rebalance_steps), for advice on a better split of layers
// into stages (schedule/stage_split.hpp). Loop thread only.
#pragma once

#include "actors/pipeline/stage_actor.hpp"
#include "actors/rank/rank_plan.hpp"
#include "actors/schedule/stage_split.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ranvier::actors {

class SplitTiming {
 public:
  /// Both must outlive this object.
  SplitTiming(const RankPlan& plan, StageActor& stage) : plan_(&plan), stage_(&stage) {}

  /// Call these before the passes of a step and after them.
  void begin_step();
  void end_step();

  /// Number of times that ranks exchange at the end of this step; 0: none.
  [[nodiscard]] std::size_t numbers(std::int64_t step) const;
  /// Adds this rank's median times of the timed steps, so that outliers do not count; ends timing.
  void add_to(std::span<double> numbers);
  [[nodiscard]] SplitAdvice advice(std::span<const double> numbers) const;

 private:
  /// Returns whether the layers of this step are timed. The first step warms up.
  [[nodiscard]] bool times() const;

  const RankPlan* plan_;
  StageActor* stage_;
  std::int64_t steps_ = 0;                        // steps of this process, current one included
  std::vector<std::vector<LayerSeconds>> timed_;  // layer times of each timed step
};

}  // namespace ranvier::actors

// Injects TrainerOptions::fault into this rank's steps, for tests. Loop thread only.
#pragma once

#include "actors/base/rank_context.hpp"
#include "actors/gradients/gradient_sync.hpp"
#include "actors/pipeline/stage_actor.hpp"
#include "actors/rank/rank_plan.hpp"

#include <cstdint>
#include <optional>

namespace ranvier::actors {

class FaultInjection {
 public:
  /// All must outlive this object.
  FaultInjection(const RankContext& context, const RankPlan& plan, StageActor& stage, GradientSync& gradients);

  /// Call it before the passes of a step; returns whether the rank stops computing here.
  [[nodiscard]] bool before_passes(std::int64_t step);
  /// Factor of the loss of this step.
  [[nodiscard]] double loss_factor(std::int64_t step) const;
  /// State to damage before the replica check after this step; once.
  [[nodiscard]] std::optional<StateKind> damage(std::int64_t step);

 private:
  using Kind = TrainerOptions::Fault::Kind;

  const RankContext* context_;
  StageActor* stage_;
  GradientSync* gradients_;
  std::optional<TrainerOptions::Fault> fault_;  // none: no fault on this rank, or damage done
};

}  // namespace ranvier::actors

// Data-parallel reduction of gradients (Myelin §III-B, §IV-B; MiCS §3.4; PaRO §3.4), in backward order and overlapped
// with passes. Loop thread only.
//
//   layer → [microbatch_reduction] → accumulated gradients → [tied_units] → [batch_reduction] → optimizer
#pragma once

#include "actors/base/actor.hpp"
#include "actors/gradients/batch_reduction.hpp"
#include "actors/gradients/microbatch_reduction.hpp"
#include "actors/gradients/tied_units.hpp"

#include <functional>
#include <vector>

namespace ranvier::actors {

class GradientSync final : public Actor {
 public:
  struct Options {
    TiedUnits::Options tied;
    bool every_step_counts = false;  ///< the optimizer updates chunks as they are reduced
    int prefetch = 2;                ///< maximum number of steps with pending reductions
  };
  struct Plan {
    MicrobatchReduction::Plan microbatch;
    TiedUnits::Plan tied;
    BatchReduction::Plan batch;
  };
  [[nodiscard]] static Plan plan(PlanContext& planner, const Options& options);

  /// `records` is null if accumulated gradients are on the device.
  GradientSync(const RankContext& context, const ModelShare& share, const Plan& plan, OffloadedGradients* records);

  /// See BatchReduction::when_reduced().
  void when_reduced(std::function<void(std::size_t chunk)> reduced) { batch_.when_reduced(std::move(reduced)); }

  /// Starts a batch; `done` runs when all units are reduced and their squared norms are available.
  void start(int microbatches, runtime::Handler done);

  /// Resource of passes.
  [[nodiscard]] MicrobatchReduction& microbatches() noexcept { return microbatch_; }

  /// Σ gradient² of this rank's shard of a unit over the batch, after `done`.
  [[nodiscard]] double sum_of_squares(std::size_t unit) const { return batch_.sum_of_squares(unit); }

  [[nodiscard]] const char* name() const noexcept override { return "gradients"; }
  [[nodiscard]] std::vector<Wait> waits() const override;
  [[nodiscard]] std::vector<int> peers() const override;

 private:
  void complete(const models::Stage::PassStep& writes);

  const models::StageSlices* stage_;
  const UnitStates* states_;
  TiedUnits tied_;
  BatchReduction batch_;
  MicrobatchReduction microbatch_;
  std::vector<std::size_t> uses_missing_;  // by unit
};

}  // namespace ranvier::actors

// Data-parallel reduction of gradients (Myelin §III-B, §IV-B; MiCS §3.4; PaRO §3.4), in backward order and overlapped
// with passes, which get the buffers for their gradients here. Loop thread only.
//
//   layer → [microbatch_reduction] → accumulated gradients → [tied_units] → [batch_reduction] → optimizer
//
// With scope N on the device, layers accumulate in place and there is no microbatch_reduction.
#pragma once

#include "actors/base/actor.hpp"
#include "actors/gradients/batch_reduction.hpp"
#include "actors/gradients/microbatch_reduction.hpp"
#include "actors/gradients/tied_units.hpp"
#include "actors/schedule/pass_resource.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace ranvier::actors {

class GradientSync final : public Actor, public PassResource {
 public:
  struct Options {
    TiedUnits::Options tied;
    bool every_step_counts = false;  ///< the optimizer updates chunks as they are reduced
    int prefetch = 2;                ///< maximum number of steps with pending reductions
  };
  struct Plan {
    std::optional<MicrobatchReduction::Plan> microbatch;  ///< none: layers accumulate in place
    TiedUnits::Plan tied;
    BatchReduction::Plan batch;
  };
  [[nodiscard]] static Plan plan(PlanContext& planner, const Options& options);

  /// `records` is null if accumulated gradients are on the device.
  GradientSync(const RankContext& context, const ModelShare& share, const Plan& plan, GradientRecords* records);

  /// See BatchReduction::when_reduced().
  void when_reduced(std::function<void(std::size_t chunk)> reduced) { batch_.when_reduced(std::move(reduced)); }

  /// Starts a batch; `done` runs when all units are reduced and their squared norms are available.
  void start(int microbatches, runtime::Handler done);

  // Accesses are steps that write gradients. One is ready when it has buffers for them.
  [[nodiscard]] bool uses(const models::Stage::PassStep& step) const override { return !step.needs_parameters(); }
  std::uint64_t announce(const Announced& pass) override;
  [[nodiscard]] bool ready(std::uint64_t use) const override { return !microbatch_ || microbatch_->ready(use); }
  void when_ready(std::uint64_t use, runtime::Handler handler) override;
  void provide(std::uint64_t use, models::StepArrays& arrays) override;
  [[nodiscard]] bool queued(std::uint64_t use) override;
  void done(std::uint64_t use) override;

  /// For tests: multiplies the first gradients that the front layer writes in this batch.
  void spoil(float factor) { spoils_by_ = factor; }

  /// Σ gradient² of this rank's shard of a unit over the batch, after `done`.
  [[nodiscard]] double sum_of_squares(std::size_t unit) const { return batch_.sum_of_squares(unit); }

  [[nodiscard]] const char* name() const noexcept override { return "gradients"; }
  [[nodiscard]] std::vector<Wait> waits() const override;
  [[nodiscard]] std::vector<int> peers() const override;

 private:
  struct Use {
    models::Stage::PassStep step;
    int microbatch = 0;
  };

  /// Returns whether layers add to the destination of gradients instead of overwriting it.
  [[nodiscard]] bool accumulates(int microbatch) const noexcept {
    return !states_->shards_gradients() && microbatch > 0;
  }
  void complete(const models::Stage::PassStep& writes);

  const RankContext* context_;
  const models::StageSlices* stage_;
  const UnitStates* states_;
  TiedUnits tied_;
  BatchReduction batch_;
  std::unique_ptr<MicrobatchReduction> microbatch_;
  std::vector<std::vector<std::byte*>> own_places_;  // by layer, if layers accumulate in place

  Accesses<Use> uses_{"gradients"};  // with the same numbers as in microbatch_
  int microbatches_ = 0;
  std::vector<std::size_t> uses_missing_;  // by unit
  std::optional<float> spoils_by_;
};

}  // namespace ranvier::actors

// Data-parallel reduction of gradients (Myelin §III-B, §IV-B; MiCS §3.4; PaRO §3.4), in backward order and overlapped
// with passes. Interface to stage actor and trainer. Loop thread only.
//
//   layer → [microbatch_reduction] → accumulated gradients → [tied_units] → [batch_reduction] → optimizer
//
// With scope N on the device, layers accumulate in place and there is no microbatch_reduction.
#pragma once

#include "actors/base/actor.hpp"
#include "actors/gradients/batch_reduction.hpp"
#include "actors/gradients/microbatch_reduction.hpp"
#include "actors/gradients/tied_units.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <span>
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

  // Backward passes and their steps that write gradients.

  /// Returns the number of the pass's first such step, the others follow. Passes with such steps are announced in the
  /// order in which they run, at the latest when they begin.
  std::uint64_t announce(const models::Stage::Pass& pass, int microbatch);
  /// Returns whether the step has a buffer for its gradients.
  [[nodiscard]] bool ready(std::uint64_t step) const { return !microbatch_ || microbatch_->ready(step); }
  /// Calls `handler` when it has; one at a time.
  void when_ready(std::uint64_t step, runtime::Handler handler);
  /// Destinations of the step's gradients, by unit of its layer.
  [[nodiscard]] std::span<std::byte* const> places(std::uint64_t number, const models::Stage::PassStep& step) const;
  /// Returns whether a layer adds to the destination instead of overwriting it.
  [[nodiscard]] bool accumulates(int microbatch) const noexcept {
    return !states_->shards_gradients() && microbatch > 0;
  }
  /// Call it when the work that writes the gradients is queued on the compute stream.
  void queued(std::uint64_t number, const models::Stage::PassStep& step);
  /// Returns whether written() must be called for this microbatch.
  [[nodiscard]] bool listens(int microbatch) const noexcept {
    return microbatch_ || microbatch + 1 == microbatches_;
  }
  /// Call it on the loop after the gradients are written, in the order of steps.
  void written(std::uint64_t number, const models::Stage::PassStep& step, int microbatch);

  /// For tests: multiplies the first gradients that the front layer writes in this batch.
  void spoil(float factor) { spoils_by_ = factor; }

  /// Σ gradient² of this rank's shard of a unit over the batch, after `done`.
  [[nodiscard]] double sum_of_squares(std::size_t unit) const { return batch_.sum_of_squares(unit); }

  [[nodiscard]] const char* name() const noexcept override { return "gradients"; }
  [[nodiscard]] std::vector<Wait> waits() const override;
  [[nodiscard]] std::vector<int> peers() const override;

 private:
  void complete(const models::Stage::PassStep& writes);

  runtime::EventLoop* loop_;
  runtime::StreamView compute_;
  const models::StageSlices* stage_;
  const UnitStates* states_;
  TiedUnits tied_;
  BatchReduction batch_;
  std::unique_ptr<MicrobatchReduction> microbatch_;
  std::vector<std::vector<std::byte*>> own_places_;  // by layer, if layers accumulate in place

  int microbatches_ = 0;
  std::vector<std::size_t> uses_missing_;  // by unit
  std::optional<float> spoils_by_;
};

}  // namespace ranvier::actors

// The data-parallel phase of gradients (Myelin §III-B, §IV-B; MiCS §3.4; PaRO §3.4), unit by unit from the back and
// overlapped with the passes. It joins the parts of the phase, as the stage actor and the trainer see it:
//
//   layer → [microbatch_reduction] → sums of the batch → [tied_units] → [batch_reduction] → optimizer
//
// With scope N on the device layers accumulate in place over the microbatches of a batch, and there is no
// microbatch_reduction. Loop thread only.
#pragma once

#include "actors/gradients/batch_reduction.hpp"
#include "actors/gradients/microbatch_reduction.hpp"
#include "actors/gradients/tied_units.hpp"
#include "actors/rank/actor.hpp"

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
    bool every_step_counts = false;  ///< the optimizer takes chunks as they are reduced
    int prefetch = 2;                ///< steps whose reduction the backward pass may be ahead of
  };
  struct Plan {
    std::optional<MicrobatchReduction::Plan> microbatch;  ///< none: layers accumulate in place
    TiedUnits::Plan tied;
    BatchReduction::Plan batch;
  };
  [[nodiscard]] static Plan plan(PlanContext& planner, const Options& options);

  /// `records` is null where sums are on the device.
  GradientSync(const RankContext& context, const ModelShare& share, const Plan& plan, GradientRecords* records);

  /// As BatchReduction::when_reduced().
  void when_reduced(std::function<void(std::size_t chunk)> reduced) { batch_.when_reduced(std::move(reduced)); }

  /// Before a batch of so many microbatches; `done` runs when all units are reduced and their sums of squares are
  /// there.
  void start(int microbatches, runtime::Handler done);

  // A backward pass and its steps that write gradients.

  /// Returns the number of the pass's first such step, the others follow. Passes with such steps are announced in the
  /// order in which they run, at the latest when they begin.
  std::uint64_t announce(const models::Stage::Pass& pass, int microbatch);
  /// Whether the step has a place to write to.
  [[nodiscard]] bool ready(std::uint64_t step) const { return !microbatch_ || microbatch_->ready(step); }
  /// Calls `handler` once it has; one at a time.
  void when_ready(std::uint64_t step, runtime::Handler handler);
  /// Where the gradients of the step's uses go, by unit of its layer.
  [[nodiscard]] std::span<std::byte* const> places(std::uint64_t number, const models::Stage::PassStep& step) const;
  /// Whether a layer adds to what is there, rather than overwriting it.
  [[nodiscard]] bool accumulates(int microbatch) const noexcept {
    return !states_->shards_gradients() && microbatch > 0;
  }
  /// The work that writes the gradients was queued on the compute stream.
  void queued(std::uint64_t number, const models::Stage::PassStep& step);
  /// Whether written() has to be called for this microbatch.
  [[nodiscard]] bool listens(int microbatch) const noexcept {
    return microbatch_ || microbatch + 1 == microbatches_;
  }
  /// The gradients are there: on the loop, after the work that made them. In the order of the steps.
  void written(std::uint64_t number, const models::Stage::PassStep& step, int microbatch);

  /// Test only: the first gradients that the front layer writes in this batch are multiplied by that.
  void spoil(float factor) { spoils_by_ = factor; }

  /// Σ gradient² of this rank's piece of a unit over the whole batch, after `done`.
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
  std::vector<std::vector<std::byte*>> own_places_;  // by layer, where layers accumulate in place

  int microbatches_ = 0;
  std::vector<std::size_t> uses_missing_;  // by unit
  std::optional<float> spoils_by_;
};

}  // namespace ranvier::actors

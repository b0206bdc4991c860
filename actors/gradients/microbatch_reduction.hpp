// Provides buffers for gradients to passes, and accumulates microbatches. If gradients are sharded (scope I or G; MiCS
// §3.4, PaRO §3.4) or offloaded, steps of a backward pass write to separate buffers, which are reduce-scattered and
// added to the sum on the device or in a tier. Offloaded gradients that are not sharded are fetched before the layer
// adds to them. Sums have the order of steps. Otherwise layers accumulate in place. Loop thread only.
#pragma once

#include "actors/gradients/offloaded_gradients.hpp"
#include "actors/schedule/buffer_schedule.hpp"
#include "actors/schedule/pass_resource.hpp"
#include "actors/states/hop_pipeline.hpp"
#include "models/core/stage.hpp"
#include "runtime/loop/in_order.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <vector>

namespace ranvier::actors {

class MicrobatchReduction final : public PassResource {
 public:
  struct Plan {
    BufferClasses classes;
    std::vector<runtime::MemoryId> places;  ///< by class: buffers for a microbatch's gradients
    HopPipeline::Plan reduction;
  };
  /// `ahead`: maximum number of steps with pending reductions. Empty if layers accumulate in place.
  [[nodiscard]] static Plan plan(PlanContext& planner, int ahead);

  /// `records` is null if accumulated gradients are on the device. `complete` is called for each step whose last
  /// microbatch is in the sums.
  MicrobatchReduction(const RankContext& context, const ModelShare& share, const Plan& plan,
                      OffloadedGradients* records, std::function<void(const models::Stage::PassStep&)> complete);

  void start(int microbatches);

  // Accesses are steps that write gradients. One is ready when it has buffers for them.
  [[nodiscard]] bool uses(const models::Stage::PassStep& step) const override { return !step.needs_parameters(); }
  std::uint64_t announce(const Announced& pass) override;
  [[nodiscard]] bool ready(std::uint64_t step) const override;
  void when_ready(std::uint64_t step, runtime::Handler handler) override {
    writings_.when_ready(step, std::move(handler));
  }
  void provide(std::uint64_t step, models::StepArrays& arrays) override;
  [[nodiscard]] bool queued(std::uint64_t step) override;
  void done(std::uint64_t step) override;

  /// For tests: multiplies the first gradients that the front layer writes in this batch.
  void spoil(float factor) { spoils_by_ = factor; }

  [[nodiscard]] std::vector<Wait> waits() const { return reduction_.waits(); }
  [[nodiscard]] std::vector<int> peers() const { return reduction_.peers(); }

 private:
  /// A sum to fetch from the tier before a layer adds to it.
  struct Sum {
    std::size_t use = 0;      // index in the stage
    std::uint64_t after = 0;  // step that wrote it last
    bool begun = false;
  };
  /// A step from its announcement until its gradients are in the sums.
  struct Writing {
    models::Stage::PassStep writes;
    int microbatch = 0;
    std::vector<std::optional<std::uint64_t>> after;  // by tied use: step that must free the buffer first
    std::vector<std::byte*> places;                   // by unit of the layer
    std::vector<Sum> sums;                            // by use of the step
    std::size_t sums_missing = 0;
  };

  /// Returns whether layers add to the destination of gradients instead of overwriting it.
  [[nodiscard]] bool adds(int microbatch) const noexcept { return !states_->shards_gradients() && microbatch > 0; }
  /// Returns whether the step's gradients are in the sums, so that its buffers are free.
  [[nodiscard]] bool is_over(std::optional<std::uint64_t> step) const {
    return !step || (*step < writings_.first() && !accumulating_.contains(*step));
  }
  void bring_sums();
  void accumulate_reduced(std::uint64_t step);

  const RankContext* context_;
  const models::StageSlices* stage_;
  const UnitStates* states_;
  OffloadedGradients* records_;
  bool in_place_;  // layers accumulate in UnitState::gradients
  std::function<void(const models::Stage::PassStep&)> complete_;
  BufferSchedule schedule_;
  HopPipeline reduction_;
  std::vector<std::byte*> places_;        // by number in the schedule: memory for a unit's gradients
  std::vector<std::size_t> use_in_unit_;  // by use of the stage
  std::vector<std::uint64_t> last_step_;  // by use of the stage: last step in the batch
  int microbatches_ = 0;
  Accesses<Writing> writings_;
  std::set<std::uint64_t> accumulating_;  // reduced steps that are being added to the sums
  runtime::InOrder sums_;
  std::optional<float> spoils_by_;
};

}  // namespace ranvier::actors

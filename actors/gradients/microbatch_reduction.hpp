// Gradients that leave the layers' memory microbatch by microbatch: where the scope of gradients is I or G (MiCS §3.4,
// PaRO §3.4), or where sums live off the device. Each step of a backward pass writes to places of its own; as the step
// leaves them they are reduce-scattered, and this rank's part is added to the sum, on the device or in a tier.
//
// Where sums live off the device and are not sharded, the sum so far is brought to the place before the layer adds to
// it. Sums are added up in the order of the steps, whatever arrives first. Loop thread only.
#pragma once

#include "actors/exchange/hop_pipeline.hpp"
#include "actors/gradients/gradient_records.hpp"
#include "actors/states/buffer_schedule.hpp"
#include "models/stage.hpp"

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace ranvier::actors {

class MicrobatchReduction {
 public:
  struct Plan {
    BufferClasses classes;
    std::vector<runtime::MemoryId> places;  ///< by class: of a microbatch's gradients
    HopPipeline::Plan reduction;
  };
  /// `ahead`: steps whose reduction the backward pass may be ahead of.
  [[nodiscard]] static Plan plan(PlanContext& planner, int ahead);

  /// `records` is null where sums are on the device. `complete` hears of each step whose last microbatch is in the
  /// sums.
  MicrobatchReduction(const RankContext& context, const ModelShare& share, const Plan& plan,
                      GradientRecords* records, std::function<void(const models::Stage::PassStep&)> complete);

  /// Before a batch of so many microbatches.
  void start(int microbatches);

  // As in gradient_sync.hpp. `adds`: layers add to what is there.
  std::uint64_t announce(const models::Stage::Pass& pass, bool adds);
  [[nodiscard]] bool ready(std::uint64_t step) const;
  void when_ready(std::uint64_t step, runtime::Handler handler);
  [[nodiscard]] std::span<std::byte* const> places(std::uint64_t step) const { return at(step).places; }
  void written(std::uint64_t step, int microbatch);

  [[nodiscard]] std::vector<Wait> waits() const { return reduction_.waits(); }
  [[nodiscard]] std::vector<int> peers() const { return reduction_.peers(); }

 private:
  /// Device memory for one unit's gradients of one microbatch.
  struct Place {
    std::byte* data = nullptr;
    std::optional<std::uint64_t> over;  // the last step whose gradients have left
  };
  /// What a layer adds to, to be brought from the tier.
  struct Sum {
    std::size_t use = 0;      // of the stage
    std::uint64_t after = 0;  // the step that left it
    bool begun = false;
  };
  /// A step of a pass from when it was announced until its gradients are in the sums.
  struct Writing {
    models::Stage::PassStep writes;
    int microbatch = 0;
    bool reduced = false;
    std::vector<std::size_t> assigned;                // its places, by use of the step
    std::vector<std::optional<std::uint64_t>> after;  // likewise, the step that must have left them
    std::vector<std::byte*> places;                   // by unit of the layer
    std::vector<Sum> sums;                            // by use of the step
    std::size_t sums_missing = 0;
  };

  [[nodiscard]] const Writing& at(std::uint64_t step) const { return writings_[step - first_]; }
  [[nodiscard]] bool is_free(const Writing& writing, std::size_t use) const;
  void bring_sums();
  void accumulate_reduced();
  void accumulate(const Writing& writing, const runtime::Handler& done);
  void accumulate_in_records(const Writing& writing, const runtime::Handler& done);
  void check_waiting();

  runtime::EventLoop* loop_;
  runtime::StreamView stream_;
  runtime::Trace* trace_;
  const models::StageSlices* stage_;
  const UnitStates* states_;
  GradientRecords* records_;
  std::function<void(const models::Stage::PassStep&)> complete_;
  BufferSchedule schedule_;
  HopPipeline reduction_;
  std::vector<Place> places_;             // as the schedule numbers them
  std::vector<std::size_t> use_in_unit_;  // by use of the stage
  std::vector<std::uint64_t> last_step_;  // likewise, in the batch
  int microbatches_ = 0;
  std::deque<Writing> writings_;
  std::uint64_t first_ = 0;  // number of writings_.front()
  std::uint64_t waiting_step_ = 0;
  runtime::Handler waiting_;
};

}  // namespace ranvier::actors

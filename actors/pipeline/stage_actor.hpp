// Runs the passes of a rank's pipeline stage (Myelin §III-C, Algorithm 2). On messages, samples, gathered parameters
// and completed work it starts the next pass that the schedule allows, one at a time; a single stage queues one pass
// ahead. Steps of a pass are queued when their resources are ready (pass_resource.hpp). Loop thread only.
//
// Deferred weight gradients (StageLayout::defers()) are separate passes in the order of the backward passes, one layer
// call at a time, with messages handled in between. The microbatch keeps its slot and a deferred buffer until then.
// They are chosen only if their gradient buffers are ready, so they never block other passes.
#pragma once

#include "actors/base/actor.hpp"
#include "actors/base/rank_context.hpp"
#include "actors/pipeline/loader.hpp"
#include "actors/pipeline/slice_queue.hpp"
#include "actors/schedule/layer_timer.hpp"
#include "actors/schedule/pass_resource.hpp"
#include "actors/schedule/policy.hpp"
#include "actors/states/model_share.hpp"
#include "models/core/pass_order.hpp"

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::actors {

class StageActor final : public Actor {
 public:
  struct Plan {
    int stage = 0;
    SliceMap map;
    std::vector<SliceQueue::Plan> slices;  ///< slices of this rank
    Policy policy = Policy::message_driven;
    int microbatch_size = 1;
    bool ordered_backward = true;  ///< fixed order of several slices' backward passes, even if message-driven
  };
  /// `ranks`: ranks of this row's pipeline, by stage.
  [[nodiscard]] static Plan plan(PlanContext& planner, const std::vector<int>& ranks, const SliceMap& map,
                                 int stage, Policy policy);

  using Batch = PassBatch;

  /// Called when all passes and sends of a batch are finished. `loss`: the row's part; 0 except on the last stage.
  using Done = std::function<void(double loss)>;

  /// Correct predictions of the last batch without training: the row's part; 0 except on the last stage.
  [[nodiscard]] double correct() const;

  /// Resources of a slice's steps, in the order of waiting.
  using Resources = std::vector<PassResource*>;

  /// `resources`: by slice. Several actors of a rank may share them if they run batches alternately (evaluation).
  StageActor(const RankContext& context, const ModelShare& share, const Plan& plan, Loader& loader,
             std::vector<Resources> resources);

  static constexpr const char* part_name = "pipeline";
  [[nodiscard]] const char* name() const noexcept override { return part_name; }
  /// Messages that the next pass waits for, and pending sends.
  [[nodiscard]] std::vector<Wait> waits() const override;
  /// Current layer of the stream: "in layer h.5", "in the weight gradients of layer h.5".
  [[nodiscard]] std::string details() const override;
  [[nodiscard]] std::vector<int> peers() const override;

  /// One batch at a time.
  void run(Batch batch, Done done);

  /// Starts timing layers, between batches.
  [[nodiscard]] LayerTimer& timer();
  void stop_timer() { timer_.reset(); }

 private:
  struct Pass {
    Direction direction = Direction::forward;
    std::size_t chunk = 0;  // index among the rank's slices
    int microbatch = 0;
    models::Stage::Pass steps;
    std::vector<std::uint64_t> uses;  // next access, by resource
    std::size_t next = 0;             // next step
    int gradient_buffer = 0;
    bool keeps_segment = false;  // Stage::Microbatch
    bool traced = false;         // a span is open on the stream
  };

  /// Returns whether the order of slices is fixed in a direction.
  [[nodiscard]] bool fixes(Direction direction) const;
  /// Slice with the next ready pass of a direction; none: no pass is ready.
  [[nodiscard]] std::optional<std::size_t> next_slice(Direction direction);
  /// Maximum number of completely queued passes.
  [[nodiscard]] int max_queued() const { return slices_.size() == 1 && slices_.front().follows_stream() ? 2 : 1; }
  [[nodiscard]] bool weights_ready() const;
  /// Chooses again when the resources of deferred weight gradients are ready.
  void await_weights();
  /// Chooses again after the loop has handled pending messages.
  void look_at_messages();
  void next();
  [[nodiscard]] PipelineProgress progress() const;
  [[nodiscard]] Direction choose(const PipelineProgress& progress) const;
  void announce(Direction direction, std::size_t chunk, int microbatch);
  void announce_uses(Pass& pass, bool backward);
  void announce_following();
  void start(Direction direction, std::size_t chunk);
  void advance();
  void announce_weights(std::size_t chunk, int microbatch);
  void advance_weights();
  void end_weights(bool over);
  struct Missing {
    PassResource* resource = nullptr;
    std::uint64_t use = 0;
  };
  /// Access that the next step of the pass waits for, if any.
  [[nodiscard]] std::optional<Missing> missing(const Pass& pass) const;
  void queue(Pass& pass);
  void mark_call(const Pass& pass);
  void trace_pass(Pass& pass, bool runs);
  void become_idle();
  /// Called when all steps of the current pass are queued.
  void all_queued(const runtime::WorkName& name, runtime::Handler done);
  /// Called when the stream has finished a pass or a call of deferred weight gradients.
  void pass_done();
  [[nodiscard]] runtime::WorkName name_of(const Pass& pass) const;
  void finish(Direction direction, std::size_t chunk, int microbatch);
  void finish_if_done();

  const RankContext* context_;
  models::StageSlices* stages_;
  std::vector<Resources> resources_;  // by slice
  Plan plan_;
  std::deque<SliceQueue> slices_;
  std::vector<NextPass> next_passes_;  // by slice; buffer of next_slice()

  Batch batch_;
  Done done_;  // null between batches
  SliceOrder order_;
  bool queueing_ = false;         // a started pass is not completely queued
  int queued_ = 0;                // passes that are completely queued but not finished
  models::RecomputeBuffer area_;  // state after the announced passes
  std::deque<Pass> passes_;       // announced passes that are not completely queued
  std::deque<Pass> waiting_;      // announced deferred weight gradients; the first ones may be partly finished
  bool awaits_weights_ = false;
  bool looks_ = false, looked_ = false;  // handling of messages before weight gradients
  std::vector<std::vector<int>>
      kept_;  // by slice and deferred buffer: the microbatch whose last segment it contains
  std::optional<LayerTimer> timer_;
  std::optional<runtime::Duration> idle_since_;
  runtime::Duration waits_since_{};  // loop time of idle_since_

  // Queued layer calls, by their first step, without older finished ones; number of calls queued before them; number of
  // finished calls. The stream writes the last one and may outlive this object.
  std::deque<models::Stage::PassStep> calls_;
  std::uint64_t calls_before_ = 0;
  std::shared_ptr<std::atomic<std::uint64_t>> calls_done_ = std::make_shared<std::atomic<std::uint64_t>>(0);
};

}  // namespace ranvier::actors

// The rank's share of a pipeline as an actor (Myelin §III-C, Algorithm 2): its slices of the model react to activations
// from the left, gradients from the right and samples that were loaded (slice_queue.hpp); parameters that were gathered
// and work that its stream completed come here. It starts the next forward or backward pass that its policy allows, of
// the slice whose turn it is. One pass runs at a time; messages travel meanwhile. A single stage waits for no messages,
// so it queues one pass behind the pass that runs.
//
// A pass is queued on the stream step by step, as soon as what a step needs is there (pass_resource.hpp): at once where
// this rank holds all of it. Where the policy says beforehand which pass comes next, that pass is announced to the
// resources while this one runs.
//
// Where weight gradients wait (StageLayout::defers()), they are passes of their own, one call of a layer after another,
// between which messages are looked at. They come in the order of the backward passes, which rows that reduce gradients
// together have alike. Their microbatch keeps its slot and a deferred place of its slice until they are done. Rows
// compute them when they like, so they hold up no pass: those whose places for gradients are not there are not chosen.
// Loop thread only.
#pragma once

#include "actors/pipeline/layer_timer.hpp"
#include "actors/pipeline/loader.hpp"
#include "actors/pipeline/pass_resource.hpp"
#include "actors/pipeline/policy.hpp"
#include "actors/pipeline/slice_queue.hpp"
#include "actors/rank/actor.hpp"
#include "actors/rank/rank_context.hpp"
#include "actors/states/model_share.hpp"
#include "models/pass_order.hpp"

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
    std::vector<SliceQueue::Plan> slices;  ///< of this rank
    Policy policy = Policy::message_driven;
    int microbatch_size = 1;
    bool ordered_backward = true;  ///< backward passes of several slices, also where messages decide
  };
  /// `ranks`: those of this row's pipeline, by stage.
  [[nodiscard]] static Plan plan(PlanContext& planner, const std::vector<int>& ranks, const SliceMap& map,
                                 int stage, Policy policy);

  using Batch = PassBatch;

  /// Everything is done and no message is under way. `loss` is the row's part, 0 but on the last stage.
  using Done = std::function<void(double loss)>;

  /// Of the last batch, without training: elements that the model tells rightly, as Done's loss the row's part.
  [[nodiscard]] double hits() const;

  /// What steps of a slice need, in the order in which it is waited for.
  using Resources = std::vector<PassResource*>;

  /// Several actors of a rank may take turns, batch by batch: evaluation reads other samples. They share resources.
  /// `resources` by slice.
  StageActor(const RankContext& context, const ModelShare& share, const Plan& plan, Loader& loader,
             std::vector<Resources> resources);

  static constexpr const char* part_name = "pipeline";
  [[nodiscard]] const char* name() const noexcept override { return part_name; }
  /// Activations and gradients that have to come before the next pass, and those that a neighbour has not taken yet.
  [[nodiscard]] std::vector<Wait> waits() const override;
  /// The call of a layer that the stream has come to: "in layer h.5", "in the weight gradients of layer h.5".
  [[nodiscard]] std::string details() const override;
  [[nodiscard]] std::vector<int> peers() const override;

  /// One batch at a time.
  void run(Batch batch, Done done);

  /// From here on what layers take is measured. Between batches.
  [[nodiscard]] LayerTimer& timer();
  void stop_timer() { timer_.reset(); }

 private:
  struct Pass {
    Direction direction = Direction::forward;
    std::size_t chunk = 0;  // of the rank's slices
    int microbatch = 0;
    models::Stage::Pass steps;
    std::vector<std::uint64_t> uses;  // by resource: the next one
    std::size_t next = 0;             // step
    int gradient_buffer = 0;
    bool keeps_segment = false;  // Stage::Microbatch
    bool traced = false;         // a span is open on the stream
  };

  /// Whether the order of the slices' passes in that direction is given.
  [[nodiscard]] bool fixes(Direction direction) const;
  /// The slice whose pass comes next in that direction, and is ready; none: none is.
  [[nodiscard]] std::optional<std::size_t> next_slice(Direction direction);
  /// Passes that may be queued as a whole at a time.
  [[nodiscard]] int max_queued() const { return slices_.size() == 1 && slices_.front().follows_stream() ? 2 : 1; }
  [[nodiscard]] bool weights_ready() const;
  /// Has weight gradients chosen once what they need is there.
  void await_weights();
  /// Chooses anew once the loop has handled what is there.
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
  /// A resource that the next step of the pass still waits for; null: none.
  [[nodiscard]] PassResource* missing(const Pass& pass) const;
  [[nodiscard]] std::uint64_t use_of(const Pass& pass, const PassResource* resource) const;
  void queue(Pass& pass);
  void mark_call(const Pass& pass);
  void trace_pass(Pass& pass, bool runs);
  void become_idle();
  /// All steps of the running pass are queued.
  void all_queued(const runtime::WorkName& name, runtime::Handler done);
  /// The stream has done a pass, or a call of weight gradients that waited.
  void pass_done();
  [[nodiscard]] runtime::WorkName name_of(const Pass& pass) const;
  void finish(Direction direction, std::size_t chunk, int microbatch);
  void finish_if_done();

  const RankContext* context_;
  models::StageSlices* stages_;
  std::vector<Resources> resources_;  // by slice
  Plan plan_;
  std::deque<SliceQueue> slices_;
  std::vector<NextPass> next_passes_;  // by slice, where next_slice() looks

  Batch batch_;
  Done done_;
  SliceOrder order_;
  bool running_ = false;
  bool queueing_ = false;         // a pass began, and not all of its steps are queued
  int queued_ = 0;                // passes whose steps are all queued and not all done
  models::RecomputeBuffer area_;  // after the passes that were announced
  std::deque<Pass> passes_;       // announced passes that are not queued as a whole; the first one may be in part
  std::deque<Pass> waiting_;  // weight gradients that wait, and are announced; the first ones may be partly done
  bool awaits_weights_ = false;
  bool looks_ = false, looked_ = false;  // at messages, before weight gradients
  std::vector<std::vector<int>> kept_;   // by slice and deferred place: the microbatch whose last segment is there
  std::optional<LayerTimer> timer_;
  std::optional<runtime::Duration> idle_since_;
  runtime::Duration waits_since_{};  // the loop's time of idle_since_

  // Calls of layers that were queued, by their first step, without some that are done; how many of all passes' calls
  // were queued before them, and are done. The last one is written by the stream, whose work may outlive this.
  std::deque<models::Stage::PassStep> calls_;
  std::uint64_t calls_before_ = 0;
  std::shared_ptr<std::atomic<std::uint64_t>> calls_done_ = std::make_shared<std::atomic<std::uint64_t>>(0);
};

}  // namespace ranvier::actors

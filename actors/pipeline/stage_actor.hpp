// A stage as an actor (Myelin §III-C, Algorithm 2): it reacts to activations from the left, gradients from
// the right, samples that were loaded, parameters that were gathered and work that its stream completed, and starts
// the next forward or backward pass that its policy allows. One pass runs at a time; messages travel meanwhile.
//
// A pass is queued on the stream step by step, as soon as what a step needs is there (pass_resource.hpp): at once where
// this rank holds all of it. Where the policy says beforehand which pass comes next, that pass is announced to the
// resources while this one runs.
//
// Where weight gradients wait (StageLayout::defers()), they are passes of their own, one call of a layer after another,
// between which messages are looked at. Their microbatch keeps its slot and a deferred place until they are done. Rows
// compute them when they like, so they hold up no pass: those whose places for gradients are not there are not chosen.
//
// Receives are posted as soon as their buffer is free: activations `slots` ahead, a gradient as soon as the activation
// that it belongs to was taken, which is long before it can come. Messages of one direction may arrive in any order;
// they are used in microbatch order. Where nothing is trained up to the end of the stage, no gradient comes for a
// microbatch: its backward pass is empty, and begins once the stage after has taken the activation. Loop thread only.
#pragma once

#include "actors/pipeline/layer_timer.hpp"
#include "actors/pipeline/loader.hpp"
#include "actors/pipeline/pass_resource.hpp"
#include "actors/pipeline/policy.hpp"
#include "actors/rank/part.hpp"
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

class StageActor final : public Part {
 public:
  struct Plan {
    int stage = 0;
    int stages = 1;
    std::optional<int> left;   ///< rank of the stage before; none: this is the first
    std::optional<int> right;  ///< rank of the stage after; none: this is the last
    Policy policy = Policy::message_driven;
    int microbatch_size = 1;
  };
  /// `ranks`: those of this row's pipeline, by stage.
  [[nodiscard]] static Plan plan(Planner& planner, const std::vector<int>& ranks, int stage, Policy policy);

  /// This row's share of a batch.
  struct Batch {
    std::int64_t step = 0;
    std::uint64_t seed = 0;
    std::int64_t first_sample = 0;  ///< number of the row's first sample within all steps
    int samples = 0;                ///< of the row; cut into microbatches, of which the last may be shorter
    bool training = true;           ///< false: forward passes only
    double loss_factor = 1;
    float loss_scale = 1;
    // Without training:
    std::optional<int> counted;  ///< samples, from the first on, that the loss is of; none: all. Rows run the same
                                 ///< number of microbatches; one with no such sample has another in its place
    int positions = 0;  ///< of every sample, as many as the loader's source gives; 0: as many as are planned
    models::ForwardDetails
        details;  ///< on the last stage: losses of all samples, logits of the first; with `positions`
  };

  /// Everything is done and no message is under way. `loss` is the row's part, 0 but on the last stage.
  using Done = std::function<void(double loss)>;

  /// Of the last batch, without training: elements that the model tells rightly, as Done's loss the row's part.
  [[nodiscard]] double hits() const noexcept { return hits_; }

  /// What steps need, in the order in which it is waited for.
  using Resources = std::vector<PassResource*>;

  /// Several actors of a rank may take turns, batch by batch: evaluation reads other samples. They share resources.
  StageActor(const RankContext& context, const ModelShare& share, const Plan& plan, Loader& loader,
             Resources resources);

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
  struct Slot {
    int microbatch = -1;  ///< whose it is
    bool input_here = false;
    bool targets_here = false;    ///< or not needed on this stage
    bool documents_here = false;  ///< or the samples have none
    bool gradient_here = false;
  };
  /// A message that a neighbour has not taken yet.
  struct Sending {
    runtime::Channel channel;
    int microbatch = 0;
    int rank = 0;
    runtime::Duration since{};
  };
  struct Pass {
    Direction direction = Direction::forward;
    int microbatch = 0;
    models::Stage::Pass steps;
    std::vector<std::uint64_t> uses;  // by resource: the next one
    std::size_t next = 0;             // step
    int gradient_buffer = 0;
    bool keeps_segment = false;  // Stage::Microbatch
    bool traced = false;         // a span is open on the stream
  };

  [[nodiscard]] int samples_of(int microbatch) const;
  /// Of samples_of(), those that count.
  [[nodiscard]] int counted_of(int microbatch) const;
  [[nodiscard]] models::Stage::Microbatch describe(const Pass& pass) const;
  [[nodiscard]] Slot& slot_of(int microbatch) {
    return slots_[static_cast<std::size_t>(microbatch % stage_->slots())];
  }
  [[nodiscard]] const Slot& slot_of(int microbatch) const {
    return slots_[static_cast<std::size_t>(microbatch % stage_->slots())];
  }
  [[nodiscard]] bool forward_ready() const;
  [[nodiscard]] bool backward_ready() const;
  [[nodiscard]] bool weights_ready() const;
  /// Has weight gradients chosen once what they need is there.
  void await_weights();
  /// Chooses anew once the loop has handled what is there.
  void look_at_messages();
  void call_for_input(int microbatch);
  void next();
  [[nodiscard]] PipelineProgress progress() const;
  [[nodiscard]] Direction choose(const PipelineProgress& progress) const;
  void announce(Direction direction, int microbatch);
  void announce_following();
  void start(Direction direction);
  void advance();
  void announce_weights(int microbatch);
  void advance_weights();
  void finish_weights(int microbatch);
  /// A resource that the next step of the pass still waits for; null: none.
  [[nodiscard]] PassResource* missing(const Pass& pass) const;
  void queue(Pass& pass);
  void mark_call(const Pass& pass);
  void trace_pass(Pass& pass, bool runs);
  void become_idle();
  [[nodiscard]] runtime::WorkName name_of(const Pass& pass) const;
  void finish_forward(int microbatch);
  void send_input_gradient(int microbatch, int buffer);
  void finish_backward(int microbatch);
  void release(int microbatch);
  void finish_if_done();
  void send(int peer, runtime::Channel channel, int microbatch, const std::byte* data, std::size_t bytes,
            runtime::Handler done);
  void receive(int peer, runtime::Channel channel, int microbatch, std::byte* data, std::size_t bytes,
               runtime::Handler done);

  const RankContext* context_;
  models::Stage* stage_;
  Loader* loader_;
  Resources resources_;
  Plan plan_;

  Batch batch_;
  Done done_;
  bool running_ = false;
  bool computing_ = false;      // a pass began and has not ended
  models::RecomputeArea area_;  // after the passes that were announced
  int microbatches_ = 0;
  int forwards_ = 0;   // started
  int backwards_ = 0;  // started
  int weights_ = 0;    // microbatches whose weight gradients are done, where they wait
  int released_ = 0;   // microbatches that are through
  double loss_ = 0;
  double hits_ = 0;
  std::vector<Slot> slots_;
  std::vector<bool> gradient_buffer_busy_;
  std::deque<Pass> passes_;   // that were announced; the first one may be running
  std::deque<Pass> waiting_;  // weight gradients that wait, and are announced; the first ones may be partly done
  bool awaits_weights_ = false;
  bool looks_ = false, looked_ = false;  // at messages, before weight gradients
  std::vector<int> kept_;                // by deferred place: the microbatch whose last segment is there
  std::optional<LayerTimer> timer_;
  std::vector<Sending> sends_;
  std::optional<runtime::Duration> idle_since_;
  runtime::Duration waits_since_{};  // the loop's time of idle_since_

  // Calls of layers of the running pass that were queued, by their first step, and how many of all passes' calls were
  // queued before them and are done. The last one is written by the stream, whose work may outlive this.
  std::vector<models::Stage::Step> calls_;
  std::uint64_t calls_before_ = 0;
  std::shared_ptr<std::atomic<std::uint64_t>> calls_done_ = std::make_shared<std::atomic<std::uint64_t>>(0);
};

}  // namespace ranvier::actors

// One slice of the model on its rank: the microbatches that are in flight there, their messages and samples, and how
// far each direction has come. It says which pass is ready; StageActor, which has one queue for each of its slices,
// chooses among them and computes.
//
// Receives are posted as soon as their buffer is free: activations `slots` ahead, samples `sample_slots` ahead. The
// receive of a gradient is posted once the activation that it belongs to was taken, long before it can come. Messages
// of one direction may arrive in any order; they are used in microbatch order. If nothing is trained up to the end of
// the slice, no gradient comes for a microbatch. Its backward pass is empty then, and begins once the next slice has
// taken the activation. Loop thread only.
#pragma once

#include "actors/pipeline/slice_order.hpp"
#include "actors/pipeline/loader.hpp"
#include "actors/pipeline/pass_batch.hpp"
#include "actors/pipeline/slice_map.hpp"
#include "actors/rank/actor.hpp"
#include "actors/rank/rank_context.hpp"
#include "models/stage.hpp"

#include <functional>
#include <optional>
#include <vector>

namespace ranvier::actors {

class SliceQueue {
 public:
  struct Plan {
    int slice = 0;             ///< of the model
    std::optional<int> left;   ///< rank of the slice before; none: this is the first
    std::optional<int> right;  ///< rank of the slice after; none: this is the last
  };
  struct Hooks {
    std::function<void()> changed;  ///< something may be ready that was not
    std::function<void()> left;     ///< a microbatch is through, or a message was taken
  };

  SliceQueue(const RankContext& context, models::Stage& stage, const SliceMap& map, const Plan& plan,
             Loader& loader, int microbatch_size, Hooks hooks);

  /// `batch` stays as it is until over().
  void begin(const PassBatch& batch);
  /// All microbatches are through, and all messages were taken.
  [[nodiscard]] bool over() const { return released_ == microbatches_ && sends_.empty(); }

  [[nodiscard]] models::Stage& stage() const { return *stage_; }
  [[nodiscard]] const Plan& plan() const { return plan_; }
  /// Passes that were started.
  [[nodiscard]] int forwards() const { return forwards_; }
  [[nodiscard]] int backwards() const { return backwards_; }
  /// Microbatches whose weight gradients are done, where they wait.
  [[nodiscard]] int weights() const { return weights_; }
  /// 0 but on the last slice.
  [[nodiscard]] double loss() const { return loss_; }
  /// Likewise; 0 in training.
  [[nodiscard]] double hits() const { return hits_; }

  [[nodiscard]] bool forward_ready() const;
  [[nodiscard]] bool backward_ready() const;
  [[nodiscard]] NextPass next(bool forward) const {
    return forward ? NextPass{forwards_, forward_ready()} : NextPass{backwards_, backward_ready()};
  }
  /// The pass that is ready begins. Returns its microbatch.
  int start_forward() { return forwards_++; }
  int start_backward() { return backwards_++; }
  /// The place that the input gradient of a pass goes to until the slice before has it.
  [[nodiscard]] int take_gradient_buffer();
  /// The stream has done them.
  void finish_forward(int microbatch);
  void send_input_gradient(int microbatch, int buffer);
  void finish_backward(int microbatch) { release(microbatch); }
  void finish_weights(int microbatch);

  [[nodiscard]] int slot_index(int microbatch) const { return microbatch % stage_->slots(); }
  /// Whether nothing but the stream's order stands between a pass and the next one: no neighbour, no deferred weight
  /// gradients.
  [[nodiscard]] bool follows_stream() const { return !plan_.left && !plan_.right && !stage_->defers(); }
  [[nodiscard]] int samples_of(int microbatch) const { return batch_->samples_of(microbatch, microbatch_size_); }
  [[nodiscard]] models::Stage::Microbatch describe(int microbatch, bool keeps_segment) const;

  /// Messages that a neighbour has not taken yet.
  void add_sends(std::vector<Wait>& all) const;
  /// The message that the next pass of a direction needs and that has not come; none: it needs none.
  [[nodiscard]] std::optional<Wait> awaited(bool forward, runtime::Duration since) const;

 private:
  /// Of Stage::sample_slots().
  struct Slot {
    int microbatch = -1;  ///< whose it is
    bool input_here = false;
    bool targets_here = false;    ///< or not needed on this slice
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

  [[nodiscard]] int sample_slot(int microbatch) const { return microbatch % stage_->sample_slots(); }
  [[nodiscard]] Slot& slot_of(int microbatch) { return slots_[static_cast<std::size_t>(sample_slot(microbatch))]; }
  [[nodiscard]] const Slot& slot_of(int microbatch) const {
    return slots_[static_cast<std::size_t>(sample_slot(microbatch))];
  }
  [[nodiscard]] std::string message(runtime::Channel channel, int microbatch) const;
  void call_for_input(int microbatch);
  void release(int microbatch);
  void send(int peer, runtime::Channel channel, int microbatch, const std::byte* data, std::size_t bytes,
            runtime::Handler done);
  void receive(int peer, runtime::Channel channel, int microbatch, std::byte* data, std::size_t bytes,
               runtime::Handler done);

  const RankContext* context_;
  models::Stage* stage_;
  SliceMap map_;
  Plan plan_;
  Loader* loader_;
  int microbatch_size_;
  Hooks hooks_;

  const PassBatch* batch_ = nullptr;
  int microbatches_ = 0;
  int forwards_ = 0, backwards_ = 0, weights_ = 0;
  int released_ = 0;  // microbatches that are through
  double loss_ = 0;
  double hits_ = 0;
  std::vector<Slot> slots_;
  std::vector<bool> gradient_buffer_busy_;
  std::vector<Sending> sends_;
};

}  // namespace ranvier::actors

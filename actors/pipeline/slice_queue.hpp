// Microbatches in flight of a slice (model chunk), their messages and samples, and the progress of each direction. It
// reports ready passes; StageActor chooses among its slices and computes. Loop thread only.
//
// Receives are posted as soon as their buffer is free: activations `slots` ahead, samples `sample_slots` ahead,
// gradients once the activation was sent. Messages may arrive in any order but are used in microbatch order. If no
// layer up to the end of the slice is trained, backward passes are empty and start when the activation was sent.
#pragma once

#include "actors/base/actor.hpp"
#include "actors/base/rank_context.hpp"
#include "actors/pipeline/loader.hpp"
#include "actors/schedule/slice_balance.hpp"
#include "actors/schedule/slice_order.hpp"
#include "models/core/stage.hpp"
#include "runtime/base/arithmetic.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace ranvier::actors {

/// A row's share of a batch.
struct PassBatch {
  std::int64_t step = 0;
  std::uint64_t seed = 0;
  std::int64_t first_sample = 0;  ///< global number of the row's first sample
  int samples = 0;                ///< samples of the row; the last microbatch may be shorter
  bool training = true;           ///< false: forward passes only
  double loss_factor = 1;
  float loss_scale = 1;
  // Without training:
  std::optional<int>
      counted;        ///< number of first samples that count for the loss; none: all. All rows run the same
                      ///< number of microbatches; a microbatch without counted samples runs one other sample
  int positions = 0;  ///< positions per sample, as in the loader's source; 0: as planned
  models::EvalOutputs
      details;  ///< outputs of the last stage: losses of all samples, logits of the first; with `positions`

  [[nodiscard]] int microbatches(int microbatch_size) const {
    return runtime::ceil_divide(samples, microbatch_size);
  }
  /// Number of samples of a microbatch that count for the loss.
  [[nodiscard]] int counted_of(int microbatch, int microbatch_size) const {
    return std::clamp(counted.value_or(samples) - microbatch * microbatch_size, 0, microbatch_size);
  }
  [[nodiscard]] int samples_of(int microbatch, int microbatch_size) const {
    return std::max(counted_of(microbatch, microbatch_size), 1);
  }
};

class SliceQueue {
 public:
  struct Plan {
    int slice = 0;             ///< number of the slice
    std::optional<int> left;   ///< rank of the previous slice; none: first slice
    std::optional<int> right;  ///< rank of the next slice; none: last slice
  };
  struct Hooks {
    std::function<void()> changed;  ///< another pass may be ready
    std::function<void()> left;     ///< a microbatch is finished, or a send has completed
  };

  SliceQueue(const RankContext& context, models::Stage& stage, const SliceMap& map, const Plan& plan,
             Loader& loader, int microbatch_size, Hooks hooks);

  /// `batch` must stay unchanged until over().
  void begin(const PassBatch& batch);
  /// Returns whether all microbatches are finished and all sends have completed.
  [[nodiscard]] bool over() const { return released_ == microbatches_ && sends_.empty(); }

  [[nodiscard]] models::Stage& stage() const { return *stage_; }
  /// Started passes.
  [[nodiscard]] int forwards() const { return forwards_; }
  [[nodiscard]] int backwards() const { return backwards_; }
  /// Microbatches with finished deferred weight gradients.
  [[nodiscard]] int weights() const { return weights_; }
  /// Loss of the batch; 0 except on the last slice.
  [[nodiscard]] double loss() const { return loss_; }
  /// Correct predictions of the batch; 0 except on the last slice without training.
  [[nodiscard]] double correct() const { return correct_; }

  [[nodiscard]] bool forward_ready() const;
  [[nodiscard]] bool backward_ready() const;
  [[nodiscard]] NextPass next(bool forward) const {
    return forward ? NextPass{forwards_, forward_ready()} : NextPass{backwards_, backward_ready()};
  }
  /// Starts the ready pass; returns its microbatch.
  int start_forward() { return forwards_++; }
  int start_backward() { return backwards_++; }
  /// Reserves a buffer for a pass's input gradient until it was sent.
  [[nodiscard]] int take_gradient_buffer();
  // Call these when the stream has finished the work.
  void finish_forward(int microbatch);
  void send_input_gradient(int microbatch, int buffer);
  void finish_backward(int microbatch) { release(microbatch); }
  void finish_weights(int microbatch);

  [[nodiscard]] int slot_index(int microbatch) const { return microbatch % stage_->slots(); }
  /// Returns whether passes depend on stream order only: no neighbours, no deferred weight gradients.
  [[nodiscard]] bool follows_stream() const { return !plan_.left && !plan_.right && !stage_->defers(); }
  [[nodiscard]] int samples_of(int microbatch) const { return batch_->samples_of(microbatch, microbatch_size_); }
  [[nodiscard]] models::Stage::Microbatch describe(int microbatch, bool keeps_segment) const;

  /// Adds pending sends.
  void add_sends(std::vector<Wait>& all) const;
  /// Message that the next pass of a direction waits for; none: no message.
  [[nodiscard]] std::optional<Wait> awaited(bool forward, runtime::Duration since) const;

 private:
  /// Slot of a microbatch; their number is Stage::sample_slots().
  struct Slot {
    int microbatch = -1;
    bool input_here = false;
    bool targets_here = false;    ///< or not needed on this slice
    bool documents_here = false;  ///< or the samples have none
    bool gradient_here = false;
  };
  /// A pending send.
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
  /// Returns a handler that marks the microbatch's data as present.
  [[nodiscard]] runtime::Handler arrival(int microbatch, bool Slot::* what);
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
  int released_ = 0;  // finished microbatches
  double loss_ = 0;
  double correct_ = 0;
  std::vector<Slot> slots_;
  std::vector<bool> gradient_buffer_busy_;
  std::vector<Sending> sends_;
};

}  // namespace ranvier::actors

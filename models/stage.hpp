// What a rank computes of a model, or one part of it (stage_slices.hpp): a contiguous slice of its layers, laid out
// (stage_layout.hpp), with the memory that its microbatches need. It runs the steps of passes (pass_order.hpp) one by
// one; StageActor decides when each is queued on a stream, for instance once its parameters are there. Passes run one
// after another.
//
// The buffer of a slot's output receives the gradient with respect to it, once the output was sent.
#pragma once

#include "models/stage_layout.hpp"
#include "runtime/arena.hpp"
#include "runtime/stream.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ranvier::models {

/// What a step works on beside the memory of its stage.
struct StepArrays {
  std::span<const std::byte* const> parameters;  ///< by unit of the layer; of steps that need parameters
  std::span<std::byte* const> gradients;         ///< by unit of the layer; of steps that write gradients
  bool accumulate = false;                       ///< gradients are added to what is there, rather than overwrite it
  const std::byte* checkpoint_read = nullptr;    ///< StageLayout::checkpoint_read()
  std::byte* checkpoint_written = nullptr;       ///< StageLayout::checkpoint_written()
};

class Stage : public StageLayout {
 public:
  struct Microbatch {
    int slot = 0;
    int sample_slot = 0;  ///< slot of its samples and losses
    int samples = 1;
    MicrobatchKey key;
    bool training = true;
    double loss_factor = 1;
    float loss_scale = 1;
    int positions = 0;  ///< of every sample, without training; 0: as many as are planned
    EvalOutputs details;
    bool documents = false;  ///< this stage has the microbatch's, in their place
    // Where weight gradients wait:
    int deferred_slot = 0;
    bool keeps_segment = false;  ///< what the forward pass keeps of its last segment lies there, too
  };

  /// Adds what the stage needs to `plan`. The architecture outlives the stage. Arrays that hold nothing between passes
  /// are those of `shares`, if there is one.
  Stage(const Architecture& architecture, const StageOptions& options, runtime::MemoryPlan& plan,
        const Stage* shares = nullptr);

  /// Says where everything but parameters and gradients lies.
  void bind(const runtime::Arena& arena);

  [[nodiscard]] std::byte* input(int sample_slot) const;
  [[nodiscard]] std::byte* output(int slot) const;  ///< null on the last stage
  [[nodiscard]] std::byte* input_gradient(int buffer) const;
  [[nodiscard]] std::byte* targets(int sample_slot) const;
  [[nodiscard]] std::byte* documents(int sample_slot) const;  ///< SampleSource::read_documents()
  [[nodiscard]] const double& loss(int sample_slot) const;    ///< pinned; valid once the forward pass is done
  /// Elements of a microbatch without training that the model tells rightly, likewise; 0 where nobody counts them.
  [[nodiscard]] double hits(int sample_slot) const;
  /// One of the checkpoint_places(), which takes any checkpoint; begins on a page and is whole pages.
  [[nodiscard]] std::span<std::byte> checkpoint_place(int place) const;

  /// Queues a step. Of parameters and gradients the layer sees those of the step's uses; they are read before this
  /// returns. `gradient_buffer` takes the input gradient. The steps of a pass come in its order.
  void run(runtime::StreamView stream, const PassStep& step, const Microbatch& microbatch, int gradient_buffer,
           const StepArrays& arrays);

 private:
  /// Layers after the first of the model write it, also where nobody waits for it.
  [[nodiscard]] bool writes_input_gradient() const noexcept { return !first() && first_backward_layer() == 0; }
  /// Where a step finds what its layer keeps: the slot, the recompute area, or its segment in a deferred place.
  [[nodiscard]] std::byte* kept(const PassStep& step, const Microbatch& microbatch) const;
  [[nodiscard]] bool in_deferred_place(const PassStep& step, const Microbatch& microbatch) const;
  /// `kept`: of that layer.
  [[nodiscard]] std::byte* layer_output(std::size_t layer, int slot, std::byte* kept) const;
  [[nodiscard]] const std::byte* input_of(runtime::StreamView stream, const PassStep& step,
                                          const Microbatch& microbatch, const std::byte* checkpoint) const;
  /// Where the gradient with respect to a layer's output comes from, and that of its input goes to.
  [[nodiscard]] std::byte* output_gradient(std::size_t layer, const Microbatch& microbatch) const;
  [[nodiscard]] std::byte* input_gradient_of(std::size_t layer, const Microbatch& microbatch,
                                             int gradient_buffer) const;

  const std::uint64_t number_;  // of this stage in this process
  runtime::MemoryId inputs_, slot_memory_, checkpoints_, recompute_, deferred_, workspace_, between_, to_left_,
      targets_, documents_, losses_;
  std::vector<std::byte*> input_, slot_, place_, target_, document_, to_left_buffer_, deferred_slot_;
  std::vector<double*> loss_;
  bool counts_correct_;  // losses_ have room for them
  std::byte* area_ = nullptr;
  std::byte* workspace_base_ = nullptr;
  std::byte* between_base_[2] = {nullptr, nullptr};
};

/// The layers per segment with the least planned bytes among the factors of the stage's number of layers
/// (Myelin §V-A; the formula printed there has its minimum elsewhere than the text says, so it is planned).
[[nodiscard]] int choose_recompute(const Architecture& architecture, StageOptions options);

}  // namespace ranvier::models

// A pipeline stage or one of its slices (stage_slices.hpp): a contiguous range of layers with its layout
// (stage_layout.hpp) and the memory of its microbatches. Runs the steps of passes (pass_order.hpp) one by one;
// StageActor decides when to queue each. Passes run one after another.
//
// The output buffer of a slot receives the output gradient after the output was sent.
#pragma once

#include "models/core/stage_layout.hpp"
#include "runtime/device/arena.hpp"
#include "runtime/device/stream.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace ranvier::models {

/// Arrays of a step outside the stage's memory.
struct StepArrays {
  std::span<const std::byte* const> parameters;  ///< by unit of the layer; for steps that need parameters
  std::span<std::byte* const> gradients;         ///< by unit of the layer; for steps that write gradients
  bool accumulate = false;                       ///< add gradients instead of overwriting
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
    int positions = 0;  ///< positions per sample, without training; 0: as planned
    EvalOutputs details;
    bool documents = false;  ///< whether the microbatch's documents are in this stage's memory
    // With deferred weight gradients:
    int deferred_slot = 0;
    bool keeps_segment = false;  ///< whether the forward pass stores its last segment there, too
  };

  /// Adds the stage's memory to `plan`. The architecture must outlive the stage. Temporary arrays are shared with
  /// `shares`, if given.
  Stage(const Architecture& architecture, const StageOptions& options, runtime::MemoryPlan& plan,
        const Stage* shares = nullptr);

  /// Assigns the memory of everything except parameters and gradients. The arena must outlive the stage's last call.
  void bind(const runtime::Arena& arena) { arena_ = &arena; }

  [[nodiscard]] std::byte* input(int sample_slot) const { return array(inputs_, sample_slot); }
  [[nodiscard]] std::byte* output(int slot) const;  ///< null on the last stage
  [[nodiscard]] std::byte* input_gradient(int buffer) const { return array(to_left_, buffer); }
  [[nodiscard]] std::byte* targets(int sample_slot) const { return array(targets_, sample_slot); }
  /// SampleSource::read_documents()
  [[nodiscard]] std::byte* documents(int sample_slot) const { return array(documents_, sample_slot); }
  /// Pinned; valid once the forward pass is done.
  [[nodiscard]] const double& loss(int sample_slot) const { return *losses(sample_slot); }
  /// Correct predictions of a microbatch without training; valid like loss(); 0 if they are not counted.
  [[nodiscard]] double correct(int sample_slot) const { return counts_correct_ ? losses(sample_slot)[1] : 0; }
  /// One of the checkpoint_places(), for any checkpoint; page-aligned, a multiple of the page size.
  [[nodiscard]] std::span<std::byte> checkpoint_place(int place) const {
    return {array(checkpoints_, place), sizes().checkpoint};
  }

  /// Queues a step. Uses the parameters and gradients of the step's units, reading their pointers before it returns.
  /// `gradient_buffer` receives the input gradient. Call in the order of the pass.
  void run(runtime::StreamView stream, const PassStep& step, const Microbatch& microbatch, int gradient_buffer,
           const StepArrays& arrays);

 private:
  [[nodiscard]] std::byte* array(runtime::MemoryId item, int index = 0) const {
    return arena_->slot(item, static_cast<std::size_t>(index));
  }
  /// Loss of a microbatch, and its correct predictions if they are counted.
  [[nodiscard]] double* losses(int sample_slot) const {
    return reinterpret_cast<double*>(array(losses_, sample_slot));
  }
  /// Whether the stage writes its input gradient, even if no rank waits for it: not on the first stage, and only if the
  /// backward pass reaches the stage's first layer.
  [[nodiscard]] bool writes_input_gradient() const noexcept { return !first() && first_backward_layer() == 0; }
  /// Memory of a step's saved data: the slot, the recompute buffer, or its segment in a deferred slot.
  [[nodiscard]] std::byte* kept(const PassStep& step, const Microbatch& microbatch) const;
  [[nodiscard]] bool in_deferred_place(const PassStep& step, const Microbatch& microbatch) const;
  /// `kept`: saved data of that layer.
  [[nodiscard]] std::byte* layer_output(std::size_t layer, int slot, std::byte* kept) const;
  [[nodiscard]] const std::byte* input_of(runtime::StreamView stream, const PassStep& step,
                                          const Microbatch& microbatch, const std::byte* checkpoint) const;
  /// Buffers of a layer's output gradient and input gradient.
  [[nodiscard]] std::byte* output_gradient(std::size_t layer, const Microbatch& microbatch) const;
  [[nodiscard]] std::byte* input_gradient_of(std::size_t layer, const Microbatch& microbatch,
                                             int gradient_buffer) const;

  const std::uint64_t number_;  // number of this stage in this process
  runtime::MemoryId inputs_, slot_memory_, checkpoints_, recompute_, shared_deferred_, deferred_, workspace_,
      between_, to_left_, targets_, documents_, losses_;
  bool counts_correct_;  // losses_ includes them
  const runtime::Arena* arena_ = nullptr;
};

/// Layers per segment with the least planned bytes, among the divisors of the number of layers (Myelin §V-A; its
/// printed formula has another minimum than its text, so memory is planned instead).
[[nodiscard]] int choose_recompute(const Architecture& architecture, StageOptions options);

}  // namespace ranvier::models

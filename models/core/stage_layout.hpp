// Layout of a pipeline stage before it has memory: layers, units, phases and array offsets. Pure data; any thread.
// - Slot: memory of a microbatch in flight: saved data and output of every layer. With recomputation only outputs of
//   segments; a buffer shared by all slots receives the recomputed segment (Myelin §V-A).
// - Checkpoint: output of a segment that the stage's next segment reads in its backward pass. May be offloaded.
// - Deferred slot: data that deferred weight gradients need. Until they are computed, the microbatch keeps its slot.
// Backward passes end at the model's first layer with trained units. Earlier layers save nothing; earlier stages have
// no backward steps.
#pragma once

#include "models/core/architecture.hpp"
#include "models/core/sample_source.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace ranvier::models {

struct StageOptions {
  LayerRange layers;
  MicrobatchShape capacity;  ///< shape of the largest microbatch
  Precision precision;
  int slots = 1;              ///< microbatches in flight
  int recompute = 0;          ///< layers per segment; 0: no recomputation, all activations are saved
  int checkpoint_places = 0;  ///< device buffers of offloaded checkpoints; 0: checkpoints stay in their slots
  int gradient_buffers = 2;   ///< buffers of input gradients that are sent to the previous stage
  int deferred_slots = 0;     ///< microbatches with deferred weight gradients; 0: backward passes compute them
  SampleBytes sample;         ///< inputs are read by the first stage, targets by the last, documents by all

  // If a rank computes several slices of the model, each has its own layout (stage_slices.hpp).
  std::size_t slice = 0;  ///< index among the rank's slices, from the front
  std::size_t slices = 1;
  /// Minimum bytes of arrays that are empty between passes; all slices share them.
  struct Scratch {
    std::size_t area = 0, deferred = 0, between = 0, workspace = 0;
  } scratch;
};

class StageLayout {
 public:
  /// One phase of a layer's call. A pass is a sequence of steps (pass_order.hpp).
  struct PassStep {
    enum class Kind : std::uint8_t {
      forward,          ///< needs the phase's parameters
      backward_input,   ///< needs the phase's parameters
      backward_weight,  ///< needs a gradient buffer for each of the phase's units; includes trained ones only
    };
    Kind kind = Kind::forward;
    bool again = false;  ///< a forward step that recomputes
    bool completes_input_gradient =
        false;              ///< after this step, the input gradient can be sent to the previous stage
    std::size_t layer = 0;  ///< within the stage
    std::size_t part = 0;   ///< phase of the call
    std::size_t slice = 0;  ///< StageOptions::slice

    [[nodiscard]] bool needs_parameters() const noexcept { return kind != Kind::backward_weight; }
    friend bool operator==(const PassStep&, const PassStep&) = default;
  };
  using Pass = std::vector<PassStep>;

  /// Offsets of a microbatch's arrays in a layer, in bytes, within the slot or the recompute buffer.
  struct LayerMemoryMap {
    Layer* layer = nullptr;
    std::size_t saved_offset = 0;
    std::size_t output_offset = 0;   ///< always in the slot for the last layer of a segment
    std::size_t scratch_output = 0;  ///< output of a segment's last layer, in the recompute buffer
    std::size_t deferred_offset = 0;
    std::size_t recomputed_offset = 0;   ///< in a deferred slot: the segment's recompute buffer
    std::size_t checkpoint_copy = 0;     ///< in a deferred slot: copy of the checkpoint that the layer reads
    bool reads_output_gradient = false;  ///< LayerMemory::output_gradient
    std::optional<std::size_t> output_gradient;  ///< in a deferred slot, if weight gradients do not follow at once
    bool ends_segment = false;
    std::optional<std::size_t> reads_checkpoint;
    std::optional<std::size_t> writes_checkpoint;  ///< in the forward pass, not in a recomputation
    /// By kind of step and phase: indices in Layer::units().
    std::array<std::vector<std::vector<std::size_t>>, 3> parts;
    std::vector<bool> writes;  ///< by phase of backward_weight; false if all of its units are frozen
  };

  /// Layers that are recomputed together.
  struct Segment {
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  /// Bytes of the stage's memory except parameters and gradients.
  struct Sizes {
    std::size_t input = 0;       ///< input of one sample
    std::size_t slot = 0;        ///< one slot
    std::size_t area = 0;        ///< recompute buffer: the largest segment
    std::size_t deferred = 0;    ///< one deferred slot; without them, the data between backward_input and _weight
    std::size_t between = 0;     ///< one of the two gradient buffers between layers
    std::size_t workspace = 0;   ///< workspace of a call
    std::size_t checkpoint = 0;  ///< largest checkpoint, rounded up to pages
  };

  /// The architecture must outlive the layout.
  StageLayout(const Architecture& architecture, const StageOptions& options);

  [[nodiscard]] bool first() const noexcept { return options_.layers.begin == 0; }
  [[nodiscard]] bool last() const noexcept { return options_.layers.end == architecture_->layers.size(); }
  [[nodiscard]] bool recomputes() const noexcept { return options_.recompute > 0; }
  [[nodiscard]] std::size_t slice() const noexcept { return options_.slice; }

  /// First layer of the stage that has backward steps; layers() if none.
  [[nodiscard]] std::size_t first_backward_layer() const noexcept { return first_backward_; }
  /// Whether the previous stage waits for this stage's input gradient, and this stage for its output gradient.
  [[nodiscard]] bool sends_gradients() const noexcept { return sends_gradients_; }
  [[nodiscard]] bool awaits_gradients() const noexcept { return !last() && first_backward_ < layers_.size(); }
  [[nodiscard]] std::size_t layers() const noexcept { return layers_.size(); }
  [[nodiscard]] const MicrobatchShape& capacity() const noexcept { return options_.capacity; }
  [[nodiscard]] const Precision& precision() const noexcept { return options_.precision; }
  [[nodiscard]] const SampleBytes& sample() const noexcept { return options_.sample; }
  [[nodiscard]] int slots() const noexcept { return options_.slots; }
  /// Number of microbatches with memory for samples and losses. A single stage loads the next samples while all slots
  /// are in use, because no messages separate its passes. A multiple of slots(), so that the addresses of a pass recur
  /// after few microbatches, as CUDA graphs need.
  [[nodiscard]] int sample_slots() const noexcept { return options_.slots * (first() && last() ? 2 : 1); }
  [[nodiscard]] int gradient_buffers() const noexcept { return options_.gradient_buffers; }
  /// At most slots(); 0 if no step writes gradients.
  [[nodiscard]] int deferred_slots() const noexcept { return deferred_slots_; }
  [[nodiscard]] bool defers() const noexcept { return deferred_slots_ > 0; }
  [[nodiscard]] const Sizes& sizes() const noexcept { return sizes_; }
  /// Sizes of the arrays that are empty between passes.
  [[nodiscard]] StageOptions::Scratch scratch() const noexcept {
    return {sizes_.area, defers() ? 0 : sizes_.deferred, sizes_.between, sizes_.workspace};
  }
  [[nodiscard]] const LayerMemoryMap& layer(std::size_t layer) const { return layers_[layer]; }
  [[nodiscard]] const std::vector<Segment>& segments() const noexcept { return segments_; }
  /// Layer::vocabulary() of the last layer on the last stage; 0 on other stages.
  [[nodiscard]] std::size_t vocabulary() const noexcept { return last() ? layers_.back().layer->vocabulary() : 0; }

  /// Bytes of a microbatch's input. `positions`: 0 means as planned; must be 0 on the first stage.
  [[nodiscard]] std::size_t input_bytes(int samples, int positions = 0) const;
  /// Bytes of a microbatch's output; 0 on the last stage.
  [[nodiscard]] std::size_t output_bytes(int samples, int positions = 0) const;

  /// Number of offloaded checkpoints per slot; numbered from the front.
  [[nodiscard]] std::size_t checkpoints() const noexcept {
    return places_ > 0 ? segments_.size() - 1 - first_checkpoint_ : 0;
  }
  [[nodiscard]] std::size_t checkpoint_bytes(std::size_t checkpoint, int samples) const;
  [[nodiscard]] int checkpoint_places() const noexcept { return places_; }
  /// Offloaded checkpoint that a step reads or writes; the same for all phases of a call. Deferred weight gradients
  /// read a copy.
  [[nodiscard]] std::optional<std::size_t> checkpoint_read(const PassStep& step) const;
  [[nodiscard]] std::optional<std::size_t> checkpoint_written(const PassStep& step) const;

  /// Units of a step: indices in Layer::units().
  [[nodiscard]] const std::vector<std::size_t>& units_of(const PassStep& step) const {
    return layers_[step.layer].parts[index_of(step.kind)][step.part];
  }
  /// Number of phases of a layer's call.
  [[nodiscard]] std::size_t parts_of(std::size_t layer, PassStep::Kind kind) const {
    return layers_[layer].parts[index_of(kind)].size();
  }
  /// Whether passes include this phase.
  [[nodiscard]] bool runs(std::size_t layer, PassStep::Kind kind, std::size_t part) const {
    return kind != PassStep::Kind::backward_weight || layers_[layer].writes[part];
  }

 private:
  [[nodiscard]] std::size_t output_bytes(const Layer& layer, int samples, int positions) const;
  static constexpr std::size_t index_of(PassStep::Kind kind) noexcept { return static_cast<std::size_t>(kind); }
  void add_layers();
  void cut_segments();
  void place_arrays();
  void place_deferred(const std::vector<std::size_t>& deferred, const std::vector<std::size_t>& outputs,
                      const std::vector<std::size_t>& areas);
  [[nodiscard]] bool keeps_output_gradient(std::size_t layer) const;
  [[nodiscard]] bool writes_gradients() const;
  [[nodiscard]] bool passes_by(std::size_t layer) const;
  void add_parts(LayerMemoryMap& map) const;

  const Architecture* architecture_;
  StageOptions options_;
  std::vector<LayerMemoryMap> layers_;
  std::vector<Segment> segments_;
  std::size_t first_backward_ = 0;
  bool sends_gradients_ = false;
  int deferred_slots_ = 0;
  std::size_t first_checkpoint_ = 0;  // earlier segments are not recomputed
  int places_ = 0;
  Sizes sizes_;
};

}  // namespace ranvier::models

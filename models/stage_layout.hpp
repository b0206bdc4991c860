// What is known of a stage before it has memory: its layers and units, the parts of their calls, and where in its
// memory a microbatch's arrays lie. Pure data; any thread.
//
// A *slot* holds what one microbatch in flight keeps from its forward to its backward pass. Without recomputation that
// is every layer's `saved` and output. With interval ac the layers form segments of ac; a slot then keeps each
// segment's input only, and the backward pass runs a segment's forward pass again in an area that all slots share
// (activation checkpointing, Myelin §V-A). Of those inputs the ones that are outputs of the stage's own layers, its
// *checkpoints*, may lie elsewhere between the passes (ZeRO-Infinity §5.1.2): then steps find them in a few places
// that whoever runs the pass assigns.
//
// Weight gradients may wait: then a backward pass computes input gradients alone, and what the weight gradients of its
// microbatch read stays until they are computed, in the slot and in a *deferred place*. That has every layer's
// `deferred`, the output gradients that layers read then, and with recomputation all that was recomputed, so that this
// happens once.
//
// Backward passes end at the first layer of the model that has trained units: what is before it keeps nothing, and
// stages before it have no backward steps at all.
#pragma once

#include "models/architecture.hpp"
#include "models/sample_source.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::models {

struct StageOptions {
  LayerRange layers;
  MicrobatchShape capacity;  ///< of the largest microbatch
  Precision precision;
  int slots = 1;              ///< microbatches in flight
  int recompute = 0;          ///< layers per segment; 0: everything is kept
  int checkpoint_places = 0;  ///< for checkpoints that lie elsewhere between passes; 0: they stay in their slots
  int gradient_buffers = 2;   ///< input gradients on their way to the left
  int deferred_slots = 0;     ///< microbatches whose weight gradients may wait; 0: backward passes compute them
  SampleBytes sample;         ///< inputs come to the first stage, targets to the last, documents to all

  // Where a rank computes several slices of the model, each is laid out for itself (stage_slices.hpp).
  std::size_t slice = 0;  ///< which of the rank's, from the front
  std::size_t slices = 1;
  /// Bytes of arrays that hold nothing between passes: all slices share them, so they are at least as large as this.
  struct Scratch {
    std::size_t area = 0, deferred = 0, between = 0, workspace = 0;
  } scratch;
};

class StageLayout {
 public:
  /// A layer's use of one of its units. Uses of one unit are numbered in layer order.
  struct UnitUse {
    std::size_t layer = 0;           ///< within the stage
    std::size_t index_in_layer = 0;  ///< in Layer::units()
    std::size_t unit = 0;            ///< in units()
  };

  /// A part of a call of a layer. Passes are made of them (pass_order.hpp).
  struct PassStep {
    enum class Kind : std::uint8_t {
      forward,          ///< needs the part's parameters
      backward_input,   ///< likewise
      backward_weight,  ///< needs a place for the gradients of each of the part's uses, which are of trained units
    };
    Kind kind = Kind::forward;
    bool again = false;                     ///< a forward step that recomputes
    bool completes_input_gradient = false;  ///< after it, what the stage before waits for can be sent
    std::size_t layer = 0;                  ///< within the stage
    std::size_t part = 0;                   ///< of the call
    std::size_t slice = 0;                  ///< StageOptions

    [[nodiscard]] bool needs_parameters() const noexcept { return kind != Kind::backward_weight; }
    friend bool operator==(const PassStep&, const PassStep&) = default;
  };
  using Pass = std::vector<PassStep>;

  /// Where what a layer keeps of a microbatch lies. Offsets are in the slot, or in the recompute area.
  struct LayerMemoryMap {
    Layer* layer = nullptr;
    std::size_t saved_offset = 0;
    std::size_t output_offset = 0;   ///< of a segment's end in the slot, always
    std::size_t scratch_output = 0;  ///< of a segment's end, in the recompute area
    std::size_t deferred_offset = 0;
    std::size_t recomputed_offset = 0;           ///< in a deferred place: the segment's recompute area
    std::size_t checkpoint_copy = 0;             ///< in a deferred place: copy of the checkpoint that it reads
    bool reads_output_gradient = false;          ///< LayerMemory::output_gradient
    std::optional<std::size_t> output_gradient;  ///< in a deferred place, if weight gradients do not follow at once
    bool ends_segment = false;
    std::optional<std::size_t> reads_checkpoint;
    std::optional<std::size_t> writes_checkpoint;                ///< the first time it runs
    std::vector<std::size_t> uses;                               ///< of the stage, by index in layer
    std::array<std::vector<std::vector<std::size_t>>, 3> parts;  ///< by kind of step: uses
    std::vector<bool> writes;  ///< by part of backward_weight: not where all of its units are frozen
  };

  /// Layers that are computed again together.
  struct Segment {
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  /// Bytes of what the stage needs beside parameters and gradients.
  struct Sizes {
    std::size_t input = 0;       ///< of a sample
    std::size_t slot = 0;        ///< what a microbatch keeps
    std::size_t area = 0;        ///< a segment that is computed again
    std::size_t deferred = 0;    ///< kept for weight gradients; a deferred place, if there are any
    std::size_t between = 0;     ///< a gradient between layers; there are two
    std::size_t workspace = 0;   ///< of a call
    std::size_t checkpoint = 0;  ///< any checkpoint, on whole pages
  };

  /// The architecture outlives the layout.
  StageLayout(const Architecture& architecture, const StageOptions& options);

  [[nodiscard]] bool first() const noexcept { return options_.layers.begin == 0; }
  [[nodiscard]] bool last() const noexcept { return options_.layers.end == architecture_->layers.size(); }
  [[nodiscard]] bool recomputes() const noexcept { return options_.recompute > 0; }
  [[nodiscard]] std::size_t slice() const noexcept { return options_.slice; }

  /// The first layer of the stage that backward passes come to; layers(): none.
  [[nodiscard]] std::size_t first_backward_layer() const noexcept { return first_backward_; }
  /// Whether the stage before waits for the gradient of the input, and this one for that of its output.
  [[nodiscard]] bool sends_gradients() const noexcept { return sends_gradients_; }
  [[nodiscard]] bool awaits_gradients() const noexcept { return !last() && first_backward_ < layers_.size(); }
  [[nodiscard]] std::size_t layers() const noexcept { return layers_.size(); }
  [[nodiscard]] const MicrobatchShape& capacity() const noexcept { return options_.capacity; }
  [[nodiscard]] const Precision& precision() const noexcept { return options_.precision; }
  [[nodiscard]] const SampleBytes& sample() const noexcept { return options_.sample; }
  [[nodiscard]] int slots() const noexcept { return options_.slots; }
  /// Microbatches whose samples and losses have memory at a time. A single stage loads the next samples while all slots
  /// are in use, because its passes follow each other without a message between them. A multiple of the slots, so that
  /// the addresses of a pass recur after few microbatches, as CUDA graphs need.
  [[nodiscard]] int sample_slots() const noexcept { return options_.slots * (first() && last() ? 2 : 1); }
  [[nodiscard]] int gradient_buffers() const noexcept { return options_.gradient_buffers; }
  /// No more than there are slots, and none where no step writes gradients.
  [[nodiscard]] int deferred_slots() const noexcept { return deferred_slots_; }
  [[nodiscard]] bool defers() const noexcept { return deferred_slots_ > 0; }
  [[nodiscard]] const Sizes& sizes() const noexcept { return sizes_; }
  /// Of those, what holds nothing between passes.
  [[nodiscard]] StageOptions::Scratch scratch() const noexcept {
    return {sizes_.area, defers() ? 0 : sizes_.deferred, sizes_.between, sizes_.workspace};
  }
  [[nodiscard]] const LayerMemoryMap& layer(std::size_t layer) const { return layers_[layer]; }
  [[nodiscard]] const std::vector<Segment>& segments() const noexcept { return segments_; }
  /// Of the last layer, on the last stage; else 0.
  [[nodiscard]] std::size_t vocabulary() const noexcept { return last() ? layers_.back().layer->vocabulary() : 0; }

  /// On stages after the first. `positions`: 0 means as many as are planned.
  [[nodiscard]] std::size_t input_bytes(int samples, int positions = 0) const;
  /// 0 on the last stage.
  [[nodiscard]] std::size_t output_bytes(int samples, int positions = 0) const;

  /// Checkpoints of a slot that need places; numbered from the front.
  [[nodiscard]] std::size_t checkpoints() const noexcept {
    return places_ > 0 ? segments_.size() - 1 - first_checkpoint_ : 0;
  }
  [[nodiscard]] std::size_t checkpoint_bytes(std::size_t checkpoint, int samples) const;
  [[nodiscard]] int checkpoint_places() const noexcept { return places_; }
  /// The checkpoint, among those, that a step reads or writes. All parts of a call name the same. Weight gradients that
  /// wait read a copy.
  [[nodiscard]] std::optional<std::size_t> checkpoint_read(const PassStep& step) const;
  [[nodiscard]] std::optional<std::size_t> checkpoint_written(const PassStep& step) const;

  /// The units of the stage's layers, each once, in layer order.
  [[nodiscard]] const std::vector<UnitSpec>& units() const noexcept { return units_; }
  [[nodiscard]] const std::vector<UnitUse>& uses() const noexcept { return uses_; }
  /// The uses of a layer, by index in layer.
  [[nodiscard]] const std::vector<std::size_t>& uses_of(std::size_t layer) const { return layers_[layer].uses; }
  /// Those of them that belong to a step.
  [[nodiscard]] const std::vector<std::size_t>& uses_of(const PassStep& step) const {
    return layers_[step.layer].parts[index_of(step.kind)][step.part];
  }
  /// Parts of a call of a layer.
  [[nodiscard]] std::size_t parts_of(std::size_t layer, PassStep::Kind kind) const {
    return layers_[layer].parts[index_of(kind)].size();
  }
  /// Whether a part of a call belongs to passes.
  [[nodiscard]] bool runs(std::size_t layer, PassStep::Kind kind, std::size_t part) const {
    return kind != PassStep::Kind::backward_weight || layers_[layer].writes[part];
  }
  /// The units of each part of the calls of this kind, part by part in the order of the layers.
  [[nodiscard]] std::vector<std::vector<std::size_t>> units_of_parts(PassStep::Kind kind) const;

 private:
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
  std::vector<UnitSpec> units_;
  std::vector<UnitUse> uses_;
  std::size_t first_backward_ = 0;
  bool sends_gradients_ = false;
  int deferred_slots_ = 0;
  std::size_t first_checkpoint_ = 0;  // segments before it are not computed again
  int places_ = 0;
  Sizes sizes_;
};

}  // namespace ranvier::models

// The part of a model that one rank computes: a contiguous slice of its layers, with the memory that its
// microbatches need. It keeps no time of its own: a *pass* (forward or backward, of one microbatch) is a list of
// calls of layers, part by part, and StageActor decides when each is queued on a stream, for instance once its
// parameters are there. Passes run one after another.
//
// A *slot* holds what one microbatch in flight keeps from its forward to its backward pass. Without
// recomputation that is every layer's `saved` and output. With interval ac the layers form segments of ac;
// a slot then keeps each segment's input only, and the backward pass runs a segment's forward pass again in
// an area that all slots share (activation checkpointing, Myelin §V-A). Of those inputs the ones that are outputs of
// the stage's own layers, its *checkpoints*, may lie elsewhere between the passes (ZeRO-Infinity §5.1.2): then steps
// find them in a few places that whoever runs the pass assigns.
//
// The buffer of a slot's output receives the gradient with respect to it, once the output was sent.
#pragma once

#include "models/architecture.hpp"
#include "models/sample_source.hpp"
#include "runtime/arena.hpp"
#include "runtime/stream.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ranvier::models {

struct StageOptions {
  LayerRange layers;
  MicrobatchShape capacity;     ///< of the largest microbatch
  Precision precision;
  int slots = 1;                ///< microbatches in flight
  int recompute = 0;            ///< layers per segment; 0: everything is kept
  int checkpoint_places = 0;    ///< for checkpoints that lie elsewhere between passes; 0: they stay in their slots
  int gradient_buffers = 2;     ///< input gradients on their way to the left
  SampleBytes sample;           ///< inputs come to the first stage, targets to the last
};

/// Where a step finds the checkpoint that it reads, and puts the one that it writes.
struct CheckpointPlaces {
  const std::byte* read = nullptr;
  std::byte* written = nullptr;
};

class Stage {
 public:
  struct Microbatch {
    int slot = 0;
    int samples = 1;
    MicrobatchKey key;
    bool training = true;
    bool accumulate = false;  ///< false for the first microbatch of a batch
    double loss_factor = 1;
    float loss_scale = 1;
    int positions = 0;  ///< of every sample, without training; 0: as many as are planned
    ForwardDetails details;
  };

  /// A layer's use of one of its units. Uses of one unit are numbered in layer order.
  struct UnitUse {
    std::size_t layer = 0;          ///< within the stage
    std::size_t index_in_layer = 0; ///< in Layer::units()
    std::size_t unit = 0;           ///< in units()
  };

  /// A part of a call of a layer. Passes are made of them, in this order.
  struct Step {
    enum class Kind : std::uint8_t {
      forward,          ///< needs the part's parameters
      backward_input,   ///< likewise
      backward_weight,  ///< needs a place for the gradients of each of the part's uses
    };
    Kind kind = Kind::forward;
    bool again = false;                     ///< a forward step that recomputes
    bool completes_input_gradient = false;  ///< after it, what the stage before waits for can be sent
    std::size_t layer = 0;                  ///< within the stage
    std::size_t part = 0;                   ///< of the call

    [[nodiscard]] bool needs_parameters() const noexcept { return kind != Kind::backward_weight; }
    friend bool operator==(const Step&, const Step&) = default;
  };
  using Pass = std::vector<Step>;

  /// Adds what the stage needs to `plan`. The architecture outlives the stage.
  Stage(const Architecture& architecture, const StageOptions& options, runtime::MemoryPlan& plan);

  [[nodiscard]] bool first() const noexcept { return options_.layers.begin == 0; }
  [[nodiscard]] bool last() const noexcept { return options_.layers.end == architecture_->layers.size(); }
  [[nodiscard]] std::size_t layers() const noexcept { return layers_.size(); }
  [[nodiscard]] const MicrobatchShape& capacity() const noexcept { return options_.capacity; }
  [[nodiscard]] const Precision& precision() const noexcept { return options_.precision; }
  [[nodiscard]] int slots() const noexcept { return options_.slots; }
  [[nodiscard]] int gradient_buffers() const noexcept { return options_.gradient_buffers; }
  /// Checkpoints of a slot that need places; numbered from the front.
  [[nodiscard]] std::size_t checkpoints() const noexcept { return places_ > 0 ? segments_.size() - 1 : 0; }
  [[nodiscard]] std::size_t checkpoint_bytes(std::size_t checkpoint, int samples) const;
  [[nodiscard]] int checkpoint_places() const noexcept { return places_; }
  /// One of the checkpoint_places(), which takes any checkpoint; begins on a page and is whole pages.
  [[nodiscard]] std::span<std::byte> checkpoint_place(int place) const;
  /// The checkpoint, among those, that a step reads or writes. All parts of a call name the same.
  [[nodiscard]] std::optional<std::size_t> checkpoint_read(const Step& step) const;
  [[nodiscard]] std::optional<std::size_t> checkpoint_written(const Step& step) const;
  /// Of the last layer, on the last stage; else 0.
  [[nodiscard]] std::size_t vocabulary() const noexcept { return last() ? layers_.back().layer->vocabulary() : 0; }
  /// The units of the stage's layers, each once, in layer order.
  [[nodiscard]] const std::vector<UnitSpec>& units() const noexcept { return units_; }
  [[nodiscard]] const std::vector<UnitUse>& uses() const noexcept { return uses_; }

  /// The uses of a layer, by index in layer.
  [[nodiscard]] const std::vector<std::size_t>& uses_of(std::size_t layer) const { return layers_[layer].uses; }
  /// Those of them that belong to a step.
  [[nodiscard]] const std::vector<std::size_t>& uses_of(const Step& step) const {
    return layers_[step.layer].parts[index_of(step.kind)][step.part];
  }
  /// The units of each part of the calls of this kind, part by part in the order of the layers.
  [[nodiscard]] std::vector<std::vector<std::size_t>> units_of_parts(Step::Kind kind) const;

  /// Says where everything but parameters and gradients lies.
  void bind(const runtime::Arena& arena);

  [[nodiscard]] std::byte* input(int slot) const;
  /// On stages after the first. `positions`: 0 means as many as are planned.
  [[nodiscard]] std::size_t input_bytes(int samples, int positions = 0) const;
  [[nodiscard]] std::byte* output(int slot) const;  ///< null on the last stage
  [[nodiscard]] std::size_t output_bytes(int samples, int positions = 0) const;
  [[nodiscard]] std::byte* input_gradient(int buffer) const;
  [[nodiscard]] std::byte* targets(int slot) const;
  [[nodiscard]] const double& loss(int slot) const;  ///< pinned; valid once the forward pass is done

  /// The calls of a microbatch's passes. To be asked for in the order in which the passes run: what has to be
  /// computed again depends on the pass before. Where a neighbour waits for the input gradient, those of all layers
  /// of the frontmost segment come before the weight gradients.
  [[nodiscard]] Pass forward_pass(int slot);
  [[nodiscard]] Pass backward_pass(int slot);

  /// Queues a step. `parameters` and `gradients` are those of the layer's units in its order, of which the layer sees
  /// those of the step's uses, and are read before this returns; `gradient_buffer` takes the input gradient. The steps of
  /// a pass come in its order.
  void run(runtime::StreamView stream, const Step& step, const Microbatch& microbatch, int gradient_buffer,
           std::span<const std::byte* const> parameters, std::span<std::byte* const> gradients,
           const CheckpointPlaces& checkpoints = {});

 private:
  struct LayerPlace {
    Layer* layer = nullptr;
    LayerMemory memory;
    std::size_t output_bytes = 0;     // at capacity
    std::size_t saved_offset = 0;     // in the slot, or in the recompute area
    std::size_t output_offset = 0;    // likewise; segment ends lie in the slot, always
    std::size_t scratch_output = 0;   // of a segment end, in the recompute area
    std::size_t deferred_offset = 0;
    bool ends_segment = false;
    std::optional<std::size_t> reads_checkpoint;
    std::optional<std::size_t> writes_checkpoint;  // the first time it runs
    std::vector<std::size_t> uses;
    std::array<std::vector<std::vector<std::size_t>>, 3> parts;  // by kind of step: uses
  };
  struct Segment {
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  static constexpr std::size_t index_of(Step::Kind kind) noexcept { return static_cast<std::size_t>(kind); }
  [[nodiscard]] int positions_of(int asked) const noexcept { return asked > 0 ? asked : options_.capacity.positions; }
  void add_parts(LayerPlace& place) const;
  void append(Pass& pass, const Step& step) const;
  [[nodiscard]] bool recomputes() const noexcept { return options_.recompute > 0; }
  [[nodiscard]] const std::byte* layer_input(std::size_t layer, int slot) const;
  [[nodiscard]] std::byte* layer_output(std::size_t layer, int slot) const;
  /// Where the gradient with respect to a layer's output comes from, and that of its input goes to.
  [[nodiscard]] const std::byte* output_gradient(std::size_t layer, int slot) const;
  [[nodiscard]] std::byte* input_gradient_of(std::size_t layer, int gradient_buffer) const;
  void append_forward(Pass& pass, int slot, std::size_t segment, bool again);

  const Architecture* architecture_;
  StageOptions options_;
  const std::uint64_t number_;  // of this stage in this process
  std::vector<LayerPlace> layers_;
  std::vector<Segment> segments_;
  std::vector<UnitSpec> units_;
  std::vector<UnitUse> uses_;
  std::size_t input_sample_bytes_ = 0;

  int places_ = 0;
  std::size_t place_bytes_ = 0;
  runtime::MemoryId inputs_, slot_memory_, checkpoints_, recompute_, deferred_, workspace_, between_, to_left_, targets_, losses_;
  std::vector<std::byte*> input_, slot_, place_, target_, to_left_buffer_;
  std::vector<double*> loss_;
  std::byte* area_ = nullptr;
  std::byte* deferred_base_ = nullptr;
  std::byte* workspace_base_ = nullptr;
  std::byte* between_base_[2] = {nullptr, nullptr};

  // Which microbatch's segment the recompute area holds, so that a backward pass right after its forward
  // pass need not run the last segment again.
  struct AreaHolder {
    int slot = -1;
    std::size_t segment = 0;
  } holder_;
};

/// The layers per segment with the least planned bytes among the factors of the stage's number of layers
/// (Myelin §V-A; the formula printed there has its minimum elsewhere than the text says, so it is planned).
[[nodiscard]] int choose_recompute(const Architecture& architecture, StageOptions options);

}  // namespace ranvier::models

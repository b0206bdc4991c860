// Base class of layers; a new kind of layer derives from it. A Layer declares its parameters and the memory of a
// microbatch as data. Calls queue work on a stream, in memory that the caller owns, and return at once. Layers do not
// depend on ranks, messages or optimizers.
//
// One instance serves all microbatches, whose calls interleave. So data between calls is stored in `saved` (forward to
// backward) and `deferred` (backward_input to backward_weight), not in the layer.
//
// Letters: B samples of a microbatch, T positions of a sample, C channels.
#pragma once

#include "models/core/unit.hpp"
#include "runtime/base/dtype.hpp"
#include "runtime/device/stream.hpp"

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ranvier::models {

/// Activations that a layer saves for its backward pass. Results are bit-identical, except for GELU that a GPU library
/// fuses with a matrix multiplication (ops/fused_matmul.hpp).
enum class SavedActivations {
  few,  ///< outputs of norms and activation functions are recomputed
  all,  ///< all that the backward pass reads
};

/// Shape of a microbatch, or of the largest one for planning.
struct MicrobatchShape {
  int samples = 1;    ///< B
  int positions = 1;  ///< T
  int threads = 1;    ///< threads of the device, for kernels with scratch memory per thread
  SavedActivations saved = SavedActivations::few;
};

/// Memory of one microbatch in a layer, in bytes.
struct LayerMemory {
  std::size_t saved = 0;         ///< written by forward, for both backward calls; backward_input may change it
  std::size_t deferred = 0;      ///< written by backward_input, read by backward_weight
  std::size_t workspace = 0;     ///< scratch memory during all phases of a call; contents are lost afterwards
  bool output_gradient = false;  ///< backward_weight reads the output gradient, so it must stay until then
};

/// Identifies a microbatch for counter-based random numbers; the same on any grid.
struct MicrobatchKey {
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::int64_t first_sample = 0;  ///< global number of its first sample within all steps
};

/// Optional outputs of the last layer in a forward pass without training. Pinned memory; null: not requested.
struct EvalOutputs {
  double* losses = nullptr;  ///< [B, T]: the loss of each element, without `loss_factor`
  float* logits = nullptr;   ///< [Layer::vocabulary()]: logits of sample 0 at `position`
  int position = 0;
};

/// Arrays of a call. All are in device memory, except `loss`, `correct` and `details`, which are pinned for the host.
/// Inputs and outputs have B · output_elements() elements of the run's dtype, sample by sample. The first layer of a
/// model reads samples (tokens, int32 [B, T], or values) and has no input gradient. The last layer writes the
/// microbatch's loss and has no output gradient.
struct LayerCall {
  runtime::StreamView stream;
  MicrobatchShape shape;  ///< B and T of this microbatch, at most the planned ones
  MicrobatchKey key;
  bool training = true;  ///< false: no dropout, no backward call follows, `saved` is scratch memory
  std::size_t part = 0;  ///< phase of the call, an index in Layer::parts()

  // Arrays of pointers, by unit in units(): valid during the call; their targets until the stream has done the work.
  // Null for units that the phase does not use.
  std::span<const std::byte* const> parameters;  ///< run dtype; empty in backward_weight
  std::span<std::byte* const> gradients;         ///< gradient dtype; only in backward_weight. Null
                                                 ///< for frozen units
  bool accumulate = false;  ///< add to the gradients; false: overwrite them, except padding and
                            ///< gaps between parameters, which are never written

  std::byte* saved = nullptr;
  std::byte* deferred = nullptr;
  std::byte* workspace = nullptr;

  /// Documents of each position, all [B, T]: first position of its document within the sample, its index in the
  /// document, and end of the document (exclusive). Attention and position numbers do not cross documents. Null: each
  /// sample is one document.
  const std::int32_t* document_starts = nullptr;
  const std::int32_t* positions = nullptr;
  const std::int32_t* document_ends = nullptr;

  const std::byte* output_gradient = nullptr;  ///< only in backward_weight, with LayerMemory::output_gradient
  const std::byte* targets = nullptr;          ///< last layer only: targets from the sample source
  double* loss = nullptr;                      ///< last layer only: forward stores the sum of the microbatch's
                                               ///< losses, times `loss_factor`
  double loss_factor = 1;                      ///< 1 / (elements of the global batch that have a loss)
  float loss_scale = 1;                        ///< factor of the loss in all gradients (fp16)
  EvalOutputs details;                         ///< last layer only, without training
  double* correct = nullptr;  ///< last layer only, without training, if it counts_correct(): forward stores
                              ///< the number of elements whose largest logit is at their target
};

/// Phases of each kind of call, in order. Each phase lists the units (indices in Layer::units()) that it reads, or
/// whose gradients it writes. Only these units are in memory while it runs. So a layer whose large matrices are split
/// into tiles needs one tile at a time (ZeRO-Infinity §5.1.3).
struct LayerPhases {
  using Units = std::vector<std::vector<std::size_t>>;
  Units forward;
  Units backward_input;
  Units backward_weight;  ///< every unit in exactly one phase, which writes all its gradients, if it is trained
};

/// Storage types of a run.
struct Precision {
  runtime::DType compute = runtime::DType::f32;   ///< parameters in layer calls, activations, messages
  runtime::DType gradient = runtime::DType::f32;  ///< parameter gradients: f32, or the compute dtype

  friend bool operator==(const Precision&, const Precision&) = default;
};

class Layer {
 public:
  virtual ~Layer() = default;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] std::span<const UnitSpec> units() const noexcept { return units_; }

  /// Floating-point operations per sample of forward and backward pass, for balancing stages and for MFU. Matrix
  /// multiplications count 6 per weight and position.
  [[nodiscard]] virtual double flops_per_sample(int positions) const = 0;

  /// Elements of the output per sample (T · C); 0 for the last layer.
  [[nodiscard]] virtual std::size_t output_elements(int positions) const = 0;

  [[nodiscard]] virtual LayerMemory memory(MicrobatchShape shape) const = 0;

  /// Number of tokens for which a model's last layer computes logits; 0: none, and LayerCall::details is ignored.
  [[nodiscard]] virtual std::size_t vocabulary() const noexcept { return 0; }

  /// Whether a model's last layer fills in LayerCall::correct.
  [[nodiscard]] virtual bool counts_correct() const noexcept { return false; }

  /// At least one phase per kind of call. Default: one phase with all units.
  [[nodiscard]] virtual LayerPhases parts() const {
    std::vector<std::size_t> all(units().size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    return {{all}, {all}, {all}};
  }

  /// Whether calls with equal shape, addresses, phase and `accumulate` queue the same work, without callbacks. The work
  /// must not depend on the microbatch's key, loss factor or loss scale. A device may then record one call and replay
  /// it (runtime::Stream::repeat).
  [[nodiscard]] virtual bool repeats([[maybe_unused]] bool training) const noexcept { return false; }

  /// Reads input and parameters; writes output and saved. In all calls, later phases can read what earlier phases
  /// wrote, including the workspace.
  virtual void forward(const LayerCall& call, const std::byte* input, std::byte* output) = 0;

  /// Reads input, saved, parameters and output_gradient; writes input_gradient and deferred. Once per forward,
  /// before backward_weight. The first layer of a model gets a null input_gradient, the last one a null
  /// output_gradient. input_gradient and output_gradient may not overlap. backward_weight gets the
  /// output_gradient only with LayerMemory::output_gradient.
  virtual void backward_input(const LayerCall& call, const std::byte* input, const std::byte* output_gradient,
                              std::byte* input_gradient) = 0;

  /// Reads input, saved and deferred, no parameters; writes or adds to the gradients. Phases whose units are all frozen
  /// are skipped.
  virtual void backward_weight(const LayerCall& call, const std::byte* input) = 0;

 protected:
  explicit Layer(std::string name, std::vector<UnitSpec> units = {})
      : name_(std::move(name)), units_(std::move(units)) {}

  /// For constructors of layers whose modules declare the parameters.
  void set_units(std::vector<UnitSpec> units) noexcept { units_ = std::move(units); }

 private:
  std::string name_;
  std::vector<UnitSpec> units_;
};

}  // namespace ranvier::models

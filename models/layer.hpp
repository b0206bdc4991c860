// The one class that whoever writes a stage of their own derives from. A Layer declares its parameters, and
// the memory that a microbatch needs, as data; it computes on memory that the caller owns, on the stream that
// the call names. It knows nothing of ranks, messages or optimizers, so it runs under any grid.
//
// Letters: B samples of a microbatch, T positions of a sample, C channels.
//
// A layer instance is shared by all microbatches, and calls of several of them interleave: what must be kept
// between calls of one microbatch lies in `saved` (forward to backward) and `deferred` (backward_input to
// backward_weight). Calls return at once; the work runs on the stream.
#pragma once

#include "models/unit.hpp"
#include "runtime/dtype.hpp"
#include "runtime/stream.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ranvier::models {

/// Activations that a layer saves for its backward pass. Results are the same to the bit, but for GELU that a GPU's
/// library computes along with a product (ops/fused_matmul.hpp).
enum class SavedActivations {
  few,  ///< outputs of norms and of activation functions are recomputed
  all,  ///< whatever the backward pass reads
};

/// The largest microbatch, for planning.
struct MicrobatchShape {
  int samples = 1;    ///< B
  int positions = 1;  ///< T
  int threads = 1;    ///< of the device: kernels that need scratch per thread plan for so many
  SavedActivations saved = SavedActivations::few;
};

/// What one microbatch needs in a layer, in bytes.
struct LayerMemory {
  std::size_t saved = 0;         ///< written by forward, for both backward calls; backward_input may change it
  std::size_t deferred = 0;      ///< written by backward_input, read by backward_weight
  std::size_t workspace = 0;     ///< scratch during any one call, all its parts; contents are lost afterwards
  bool output_gradient = false;  ///< backward_weight reads the output gradient, which is kept for it
};

/// Which microbatch, for counter-based randomness: the same on any grid.
struct MicrobatchKey {
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::int64_t first_sample = 0;  ///< global number of its first sample within all steps
};

/// What the last layer says of a forward pass without training, beside the loss, to whoever asks. Pinned memory; null:
/// nobody does.
struct EvalOutputs {
  double* losses = nullptr;  ///< [B, T]: the loss of each element, without `loss_factor`
  float* logits = nullptr;   ///< [Layer::vocabulary()]: of sample 0 at `position`
  int position = 0;
};

/// Everything of a call lies in device memory, but `loss`, which the host reads too and is pinned. A layer's input
/// and output have B · output_elements() elements of the run's dtype, sample by sample. The first layer of a model
/// reads what the sample source gives (tokens, int32 [B, T], or values) and has no input gradient; the last one
/// writes the microbatch's loss and has no output gradient.
struct LayerCall {
  runtime::StreamView stream;
  MicrobatchShape shape;  ///< B and T of this microbatch, either of which may be fewer than planned
  MicrobatchKey key;
  bool training = true;  ///< false: no dropout, no backward will follow, `saved` is scratch
  std::size_t part = 0;  ///< of Layer::parts()

  // The arrays of pointers are there during the call only, what they point to until the stream has done its work.
  // Null for units that the part does not use.
  std::span<const std::byte* const> parameters;  ///< of each unit in units(), run dtype; empty in backward_weight
  std::span<std::byte* const>
      gradients;            ///< of each unit in units(), gradient dtype; only in backward_weight. Null
                            ///< for frozen units
  bool accumulate = false;  ///< add to the gradients; false: the first microbatch overwrites them whole,
                            ///< except gaps between parameters and their padding, which nobody writes

  std::byte* saved = nullptr;
  std::byte* deferred = nullptr;
  std::byte* workspace = nullptr;

  /// Of each position the first one of its document within the sample, its place in that, and the end of the document,
  /// one behind the last: positions of different documents do not see each other and count from zero. All [B, T], or
  /// null: a sample is one document.
  const std::int32_t* document_starts = nullptr;
  const std::int32_t* positions = nullptr;
  const std::int32_t* document_ends = nullptr;

  const std::byte* output_gradient = nullptr;  ///< only in backward_weight, with LayerMemory::output_gradient
  const std::byte* targets = nullptr;          ///< last layer only: what the sample source gives as targets
  double* loss = nullptr;                      ///< last layer only: forward stores the sum over the microbatch's
                                               ///< elements of their losses times `loss_factor`
  double loss_factor = 1;                      ///< 1 / (elements of the global batch that have a loss)
  float loss_scale = 1;                        ///< gradients are those of loss · loss_scale (fp16)
  EvalOutputs details;                         ///< last layer only, without training
  double* hits = nullptr;  ///< last layer only, without training, where it counts_correct(): forward stores
                           ///< how many elements of the microbatch have the greatest logit at their target
};

/// A call may come in several parts, which follow one another on the stream: only the units of a part are there while
/// it runs, so that a layer of large operators that are cut into tiles needs no more than a tile of them at a time
/// (ZeRO-Infinity §5.1.3). For each kind of call its parts in order; for each part the indices of the units that it
/// reads, or whose gradients it writes.
struct LayerPhases {
  using Units = std::vector<std::vector<std::size_t>>;
  Units forward;
  Units backward_input;
  Units backward_weight;  ///< every unit in exactly one part, which writes all its gradients, if it is trained
};

/// Storage types of a run.
struct Precision {
  runtime::DType compute = runtime::DType::f32;   ///< parameters as layers read them, activations, messages
  runtime::DType gradient = runtime::DType::f32;  ///< parameter gradients: f32, or the compute dtype

  friend bool operator==(const Precision&, const Precision&) = default;
};

class Layer {
 public:
  virtual ~Layer() = default;

  [[nodiscard]] virtual const std::string& name() const noexcept = 0;
  [[nodiscard]] virtual std::span<const UnitSpec> units() const noexcept = 0;

  /// Floating-point operations per sample of forward and backward, for balance and for MFU:
  /// matrix products count 6 per weight and position.
  [[nodiscard]] virtual double flops_per_sample(int positions) const = 0;

  /// Elements of the output per sample (T · C); 0 for the last layer.
  [[nodiscard]] virtual std::size_t output_elements(int positions) const = 0;

  [[nodiscard]] virtual LayerMemory memory(MicrobatchShape shape) const = 0;

  /// Tokens that a model's last layer gives logits of; 0: of none, and it fills in no LayerCall::details.
  [[nodiscard]] virtual std::size_t vocabulary() const noexcept { return 0; }

  /// Whether a model's last layer fills in LayerCall::hits.
  [[nodiscard]] virtual bool counts_correct() const noexcept { return false; }

  /// At least one part of each call. One of all units, unless a layer says otherwise.
  [[nodiscard]] virtual LayerPhases parts() const;

  /// Whether calls of equal shape, places, part and `accumulate` queue the same work: nothing in it follows from the
  /// microbatch's key, its loss's factor or scale, and nothing is called back. A device may then repeat what it kept of
  /// one of them (runtime::Stream::repeat).
  [[nodiscard]] virtual bool repeats([[maybe_unused]] bool training) const noexcept { return false; }

  /// Reads input and parameters; writes output and saved. What it wrote, also to the workspace, is there in the parts
  /// that follow; so it is in the other calls.
  virtual void forward(const LayerCall& call, const std::byte* input, std::byte* output) = 0;

  /// Reads input, saved, parameters and output_gradient; writes input_gradient and deferred. Once per forward,
  /// before backward_weight. The first layer of a model gets a null input_gradient, the last one a null
  /// output_gradient. input_gradient and output_gradient may not overlap. backward_weight gets the
  /// output_gradient only with LayerMemory::output_gradient.
  virtual void backward_input(const LayerCall& call, const std::byte* input, const std::byte* output_gradient,
                              std::byte* input_gradient) = 0;

  /// Reads input, saved and deferred, no parameters; writes or adds to the gradients. Left out for parts whose units
  /// are all frozen.
  virtual void backward_weight(const LayerCall& call, const std::byte* input) = 0;
};

}  // namespace ranvier::models

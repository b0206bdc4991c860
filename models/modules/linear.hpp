// Linear maps: rows times one matrix, or several matrices side by side (queries, keys and values; gate and up).
// Adjacent parameters are multiplied at once.
//
// Weights may be split into tiles, one per phase of a call (tiles.hpp). Biases and adapters are never split. Each
// tensor that a run adapts has an adapter (models/core/lora.hpp).
//
// Letters: N rows, I input channels, O output channels of all tensors together, R rank of adapters, S tiles.
#pragma once

#include "models/modules/layer_call.hpp"
#include "models/modules/tiles.hpp"
#include "models/modules/unit_builder.hpp"
#include "models/ops/activation.hpp"
#include "models/ops/matmul.hpp"

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ranvier::models {

struct LinearOptions {
  struct Tensor {
    std::string name;          ///< name of .weight and .bias
    std::size_t channels = 0;  ///< output channels
    std::size_t parts = 1;     ///< equal parts, of each of which an `outputs_apart` tile has a share
  };
  /// Layout of a weight in memory.
  enum class Layout {
    out_in,  ///< Hugging Face's linear layers
    in_out,  ///< GPT-2's; one tensor only
  };

  /// Split of the weights into equal tiles.
  struct Cut {
    enum class Along {
      outputs,        ///< a tile computes O/S columns of y
      outputs_apart,  ///< a tile computes its own y[N, O/S], with an equal share of every tensor or its parts
      inputs,         ///< a tile reads its own x[N, I/S]; y is the sum over tiles
    };
    std::vector<std::size_t> groups;  ///< groups in the builder, one per tile; empty: not tiled
    Along along = Along::outputs;
  };

  std::vector<Tensor> tensors;  ///< outputs in this order
  std::size_t in = 0;           ///< I
  Layout layout = Layout::out_in;
  bool bias = false;        ///< not for several tensors with outputs_apart
  bool adapts = true;       ///< has adapters if the run trains them and targets this tensor
  Initializer initializer;  ///< initial values of weights; biases are initialized to zero
  Cut cut;
  /// Output channels of each matrix that Muon orthogonalizes, O together, regardless of tensors. Empty: none.
  std::vector<std::size_t> matrices;
};

/// Offsets of a call's arrays.
struct LinearArrays {
  std::size_t scratch = 0;  ///< workspace: Linear::scratch_bytes()

  // Adapters only:
  std::size_t inner = 0;    ///< saved, per adapter [N, R]: alpha / R · A(dropout(x))
  std::size_t d_inner = 0;  ///< deferred, per adapter [N, R]: gradient of A(dropout(x))
  std::size_t dropped = 0;  ///< workspace [N, I], with dropout
  std::size_t joined = 0;   ///< workspace [N, I], if tiles have their own x: the complete x or its gradient
  std::size_t sums =
      0;  ///< workspace, per adapter [N, R] float: d_inner in half precision, summed over tiles with their own y
  std::size_t bytes = 0;  ///< bytes of an [N, R]; 0: nothing is planned
};

class Linear {
 public:
  using Arrays = LinearArrays;

  /// Declares the weights, then the biases, then the adapters.
  Linear(UnitBuilder& builder, std::size_t unit, const LinearOptions& options);

  [[nodiscard]] std::size_t in() const { return in_; }
  [[nodiscard]] std::size_t out() const { return out_; }

  [[nodiscard]] bool has_adapters() const { return !adapters_.empty(); }
  /// Whether training drops inputs of adapters.
  [[nodiscard]] bool drops() const { return has_adapters() && dropout_ > 0; }
  [[nodiscard]] const Tiles& tiles() const { return tiles_; }

  /// Arrays for the calls below; layers without adapters and tiles need none. `scratch`: offset of scratch_bytes() in
  /// the workspace that nothing else writes between the tiles of a call.
  [[nodiscard]] Arrays plan(CallMemory& memory, std::size_t rows, std::size_t scratch = 0) const;
  [[nodiscard]] std::size_t scratch_bytes(std::size_t rows) const;

  // Each call computes one tile; tiles come in order. y and dx are complete after the last tile.

  /// y[N, O] = x[N, I] · weightᵀ + bias
  void forward(const LayerCall& call, std::byte* y, const std::byte* x, const Arrays& at = {},
               std::size_t tile = 0) const;
  /// forward() plus addend[N, O], which is not y; null: no addend.
  void forward_add(const LayerCall& call, std::byte* y, const std::byte* x, const std::byte* addend,
                   const Arrays& at = {}, std::size_t tile = 0) const;
  /// forward(), and active[N, O] = gelu(y). Not for tiles with Along::outputs.
  void forward_gelu(const LayerCall& call, std::byte* y, std::byte* active, const std::byte* x, GeluForm form,
                    const Arrays& at = {}, std::size_t tile = 0) const;
  /// forward() while decoding, without adapters. A single row uses matrix_vector(), which reads untiled [out, in]
  /// weights at memory bandwidth.
  void decode(const LayerCall& call, std::byte* y, const std::byte* x) const;

  /// dx[N, I] = dy[N, O] · weight
  void backward_input(const LayerCall& call, std::byte* dx, const std::byte* dy, const Arrays& at = {},
                      std::size_t tile = 0) const;
  /// backward_input() through x = gelu(inner): d_inner[N, I] = dx · gelu'(inner). Writes x too, unless it is null; x
  /// may be inner. Not for tiles that add to dx.
  void backward_gelu(const LayerCall& call, std::byte* d_inner, const std::byte* inner, std::byte* x,
                     const std::byte* dy, GeluForm form, const Arrays& at = {}, std::size_t tile = 0) const;

  /// Gradients of all parameters, for untiled weights.
  void backward_weight(const LayerCall& call, const std::byte* x, const std::byte* dy, std::byte* scratch,
                       const Arrays& at = {}) const;
  /// Gradients of the weights. For untiled [in, out] weights, also of the biases.
  void backward_matrix(const LayerCall& call, const std::byte* x, const std::byte* dy, std::size_t tile = 0) const;
  /// Gradients of the adapters, if any. `tile_bytes`: distance between the x or dy of two tiles, if each tile has its
  /// own.
  void backward_adapters(const LayerCall& call, const std::byte* x, const std::byte* dy, const Arrays& at,
                         std::size_t tile_bytes = 0) const;
  /// Gradients of the biases that backward_matrix() does not compute: all, or the tile's with outputs_apart.
  void backward_bias(const LayerCall& call, const std::byte* dy, std::byte* scratch, std::size_t tile = 0) const;

 private:
  /// Consecutive outputs whose parameters are adjacent.
  struct Run {
    std::size_t first = 0;  ///< first output
    std::size_t channels = 0;
    ParameterRef place;
    std::size_t tile = 0;
    std::size_t column = 0;  ///< first column in the tile's y
  };

  /// Destination of a sum over tiles: float, rounded once at the end.
  struct Sum {
    std::byte* to = nullptr;
    runtime::DType dtype = runtime::DType::f32;
  };
  /// `result` itself, or a float array if tiles add to it in half precision (`sums`).
  [[nodiscard]] Sum sum_of(const LayerCall& call, std::byte* result, bool sums, const Arrays& at) const;
  void round(const LayerCall& call, std::byte* result, const Sum& sum, std::size_t elements) const;

  struct Adapter {
    std::size_t first = 0;  ///< first output
    std::size_t channels = 0;
    std::size_t parts = 1;  ///< LinearOptions::Tensor::parts, if outputs are apart
    ParameterRef a, b;
    std::uint32_t dropout_site = 0;
  };

  /// Adjacent outputs of a tensor, of which each tile has a share.
  struct TensorPart {
    const LinearOptions::Tensor* tensor;
    std::size_t part;      ///< number within the tensor
    std::size_t channels;  ///< outputs of the part
  };
  /// All parts in order; complete tensors unless outputs are apart.
  [[nodiscard]] std::vector<TensorPart> tensor_parts(const std::vector<LinearOptions::Tensor>& tensors) const;
  void add_weights(UnitBuilder& builder, std::size_t unit, const LinearOptions& options);
  /// Outputs begin … end-1 of a part that belong to a tile, counted from `first`, the part's first output.
  [[nodiscard]] std::pair<std::size_t, std::size_t> outputs_of(std::size_t tile, std::size_t first,
                                                               std::size_t channels) const;
  void add_biases(UnitBuilder& builder, std::size_t unit, const LinearOptions& options);
  void add_adapters(UnitBuilder& builder, std::size_t unit, const LinearOptions& options);
  /// Adds the adapters' contributions to the tile's y, or to dx.
  void adapt(const LayerCall& call, std::byte* y, const std::byte* x, const Arrays& at, std::size_t tile) const;
  void adapt_backward(const LayerCall& call, std::byte* dx, const std::byte* dy, const Arrays& at,
                      std::size_t tile) const;
  /// Computes `inner` from x[N, I].
  void adapt_inputs(const LayerCall& call, const std::byte* x, const Arrays& at) const;
  /// y += B(inner), for all of y or the tile's columns.
  void adapt_outputs(const LayerCall& call, std::byte* y, const Arrays& at, std::size_t tile) const;
  /// d_inner from all of dy, or the tile's contribution to it.
  void adapt_d_inner(const LayerCall& call, const std::byte* dy, const Arrays& at, std::size_t tile) const;
  /// dx[N, I] += contribution of A.
  void adapt_d_inputs(const LayerCall& call, std::byte* dx, const Arrays& at) const;
  /// Copies a tile's x[N, I/S] into its columns of `joined`.
  void join(const LayerCall& call, const std::byte* x, const Arrays& at, std::size_t tile) const;
  /// x, or a copy with the adapter's dropout applied.
  [[nodiscard]] const std::byte* dropped(const LayerCall& call, const Adapter& adapter, const std::byte* x,
                                         const Arrays& at) const;
  void drop(const LayerCall& call, const Adapter& adapter, std::byte* values) const;
  /// Outputs of an adapter's part within a tile's y: their number, first row of B and first column of y.
  struct AdaptedOutputs {
    std::size_t channels, first_row, column;
    std::size_t stride;  ///< elements between rows of y; 0: no gaps
  };
  [[nodiscard]] AdaptedOutputs outputs_of(const Adapter& adapter, std::size_t tile, std::size_t part) const;

  /// The tile's only run, if its multiplication with x or dy has no gaps and no other contribution, so that GELU can be
  /// fused with it. Null otherwise.
  [[nodiscard]] const Run* plain_run(std::size_t tile) const;
  [[nodiscard]] MatmulShape forward_shape(const LayerCall& call, const Run& run) const;
  [[nodiscard]] MatmulArrays forward_arrays(const LayerCall& call, const Run& run, const Sum& y,
                                            const std::byte* x) const;
  [[nodiscard]] MatmulShape backward_shape(const LayerCall& call, const Run& run) const;
  /// Whether backward_matrix() also computes the bias gradient, in the same multiplication.
  [[nodiscard]] bool takes_bias_along(const LayerCall& call) const;

  /// Appends a run, or extends the last one if their parameters are adjacent. `elements`: parameters per output.
  static void append(std::vector<Run>& runs, const Run& next, std::size_t elements);
  [[nodiscard]] const std::byte* bias_of(const LayerCall& call, const Run& weight) const;

  [[nodiscard]] bool sums_outputs() const {
    return tiles_.size() > 1 && along_ == LinearOptions::Cut::Along::inputs;
  }
  [[nodiscard]] bool sums_inputs() const { return tiles_.size() > 1 && !sums_outputs(); }
  [[nodiscard]] bool outputs_apart() const { return row_ < out_; }
  [[nodiscard]] bool is_last(std::size_t tile) const { return tile + 1 == tiles_.size(); }
  /// Elements between rows of y, if the run covers only some of its columns; 0 otherwise.
  [[nodiscard]] std::size_t stride_of(const Run& run) const { return run.channels < row_ ? row_ : 0; }

  std::size_t in_, out_ = 0;
  std::size_t tile_in_ = 0;  ///< columns of a tile's x
  std::size_t row_ = 0;      ///< columns of a tile's y
  LinearOptions::Layout layout_;
  LinearOptions::Cut::Along along_;
  runtime::DType dtype_, gradient_dtype_;
  Tiles tiles_;
  std::vector<Run> weights_;
  std::vector<Run> biases_;  ///< empty: no biases
  std::vector<Adapter> adapters_;
  std::size_t rank_ = 0;
  float factor_ = 0, dropout_ = 0;
};

}  // namespace ranvier::models

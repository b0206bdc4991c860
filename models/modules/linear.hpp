// Products of rows with one matrix, or with several side by side (queries, keys and values; gate and up), which are one
// product where their parameters follow each other without gaps.
//
// Weights may be cut into tiles, of which a call computes with one (tiles.hpp). Biases and adapters stay whole.
//
// Where a run tunes adapters (models/lora.hpp), each tensor that is one of their targets has one.
//
// Letters: N rows, I channels in, O channels out, of all tensors together, R the rank of adapters, S tiles.
#pragma once

#include "models/memory_layout.hpp"
#include "models/ops/gelu.hpp"
#include "models/ops/matmul.hpp"
#include "models/modules/layer_call.hpp"
#include "models/modules/tiles.hpp"
#include "models/modules/unit_builder.hpp"

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ranvier::models {

struct LinearOptions {
  struct Tensor {
    std::string name;          ///< of its .weight and .bias
    std::size_t channels = 0;  ///< of the output
  };
  /// How a weight is stored.
  enum class Layout {
    out_in,  ///< Hugging Face's linear layers
    in_out,  ///< GPT-2's; of one tensor only
  };

  /// Where weights are cut, into equal shares.
  struct Cut {
    enum class Along {
      outputs,        ///< a tile gives O/S columns of y
      outputs_apart,  ///< a tile gives a y[N, O/S] of its own, with as large a share of every tensor
      inputs,         ///< a tile takes an x[N, I/S] of its own; y is the sum of what tiles give
    };
    std::vector<std::size_t> groups;  ///< of the builder, one for each tile; none: weights are whole
    Along along = Along::outputs;
  };

  std::vector<Tensor> tensors;  ///< outputs in this order
  std::size_t in = 0;           ///< I
  Layout layout = Layout::out_in;
  bool bias = false;        ///< not of several tensors whose outputs are apart
  bool adapts = true;       ///< takes adapters, where a run tunes such and it is one of their targets
  Initializer initializer;  ///< of weights; biases begin with zeros
  Precision precision;
  Cut cut;
};

/// Where the arrays of a call lie.
struct LinearArrays {
  std::size_t scratch = 0;  ///< workspace: Linear::scratch_bytes()

  // Of adapters, if there are some.
  std::size_t inner = 0;    ///< saved, of each [N, R]: alpha / R · A(dropout(x))
  std::size_t d_inner = 0;  ///< deferred, of each [N, R]: the gradient of A(dropout(x))
  std::size_t dropped = 0;  ///< workspace [N, I], with dropout
  std::size_t joined = 0;   ///< workspace [N, I], where tiles have an x of their own: all of it, or of its gradient
  std::size_t sums =
      0;  ///< workspace, of each [N, R] float: d_inner in half precision, as tiles with y apart add up
  std::size_t bytes = 0;  ///< of an [N, R]; 0: nothing is planned
};

class Linear {
 public:
  using Arrays = LinearArrays;

  /// Declares the weights, then the biases, then the adapters, which stay whole.
  Linear(UnitBuilder& builder, std::size_t unit, const LinearOptions& options);

  [[nodiscard]] std::size_t in() const { return in_; }
  [[nodiscard]] std::size_t out() const { return out_; }

  [[nodiscard]] bool has_adapters() const { return !adapters_.empty(); }
  /// Whether calls in training drop values of their own.
  [[nodiscard]] bool drops() const { return has_adapters() && dropout_ > 0; }
  [[nodiscard]] const Tiles& tiles() const { return tiles_; }

  /// For the calls below, which layers without adapters and tiles make without it. `scratch`: where in the workspace
  /// scratch_bytes() lie that nothing else writes while tiles of a call follow each other.
  [[nodiscard]] Arrays plan(MemoryLayout& saved, MemoryLayout& deferred, MemoryLayout& workspace, std::size_t rows,
                            std::size_t scratch = 0) const;
  [[nodiscard]] std::size_t scratch_bytes(std::size_t rows) const;

  // Of tiles, each call does one, in order. What they give together, y or dx, is there after the last of them.

  /// y[N, O] = x[N, I] · weightᵀ + bias
  void forward(const LayerCall& call, std::byte* y, const std::byte* x, const Arrays& at = {},
               std::size_t tile = 0) const;
  /// The same plus addend[N, O], which is not y; null: there is none.
  void forward_add(const LayerCall& call, std::byte* y, const std::byte* x, const std::byte* addend,
                   const Arrays& at = {}, std::size_t tile = 0) const;
  /// forward(), and active[N, O] = gelu(y). Not of tiles that give columns of y.
  void forward_gelu(const LayerCall& call, std::byte* y, std::byte* active, const std::byte* x, GeluForm form,
                    const Arrays& at = {}, std::size_t tile = 0) const;
  /// forward() where text is read: of one row as matrix_vector(), which reads whole weights that are stored
  /// [out, in] as fast as memory gives them. Without adapters.
  void decode(const LayerCall& call, std::byte* y, const std::byte* x) const;

  /// dx[N, I] = dy[N, O] · weight
  void backward_input(const LayerCall& call, std::byte* dx, const std::byte* dy, const Arrays& at = {},
                      std::size_t tile = 0) const;
  /// The same through x = gelu(inner): d_inner[N, I] = dx · gelu'(inner), and x, which may be inner, unless it is null.
  /// Not of tiles that add up dx.
  void backward_gelu(const LayerCall& call, std::byte* d_inner, const std::byte* inner, std::byte* x,
                     const std::byte* dy, GeluForm form, const Arrays& at = {}, std::size_t tile = 0) const;

  /// The parameters' gradients, of weights that are whole.
  void backward_weight(const LayerCall& call, const std::byte* x, const std::byte* dy, std::byte* scratch,
                       const Arrays& at = {}) const;
  /// Those of the weights; a whole weight's that is stored [in, out] together with its bias's.
  void backward_matrix(const LayerCall& call, const std::byte* x, const std::byte* dy, std::size_t tile = 0) const;
  /// Those of the adapters, if there are some. `tile_bytes`: from a tile's x or dy to the next, where those are apart.
  void backward_adapters(const LayerCall& call, const std::byte* x, const std::byte* dy, const Arrays& at,
                         std::size_t tile_bytes = 0) const;
  /// After backward_matrix(), those of the biases that are left: of all, or with outputs apart of the tile's.
  void backward_bias(const LayerCall& call, const std::byte* dy, std::byte* scratch, std::size_t tile = 0) const;

 private:
  /// Some of the outputs, whose parameters follow each other.
  struct Run {
    std::size_t first = 0;  ///< of the outputs
    std::size_t channels = 0;
    ParameterRef place;
    std::size_t tile = 0;
    std::size_t column = 0;  ///< of y, as the tile sees it
  };

  /// Where what tiles give is added up: in float, to be rounded once.
  struct Sum {
    std::byte* to = nullptr;
    runtime::DType dtype = runtime::DType::f32;
  };
  /// `result` itself, unless tiles make a `sum` of it in half precision.
  [[nodiscard]] Sum sum_of(const LayerCall& call, std::byte* result, bool sums, const Arrays& at) const;
  void round(const LayerCall& call, std::byte* result, const Sum& sum, std::size_t elements) const;

  struct Adapter {
    std::size_t first = 0;  ///< of the outputs
    std::size_t channels = 0;
    ParameterRef a, b;
    std::uint32_t dropout_site = 0;
  };

  void add_weights(UnitBuilder& builder, std::size_t unit, const LinearOptions& options);
  /// Which outputs of a tensor are a tile's, where the tensor's begin with `first` of all.
  [[nodiscard]] std::pair<std::size_t, std::size_t> outputs_of(std::size_t tile, std::size_t first,
                                                               std::size_t channels) const;
  void add_biases(UnitBuilder& builder, std::size_t unit, const LinearOptions& options);
  void add_adapters(UnitBuilder& builder, std::size_t unit, const LinearOptions& options);
  /// What adapters add to what a tile gives, of y and of dx.
  void adapt(const LayerCall& call, std::byte* y, const std::byte* x, const Arrays& at, std::size_t tile) const;
  void adapt_backward(const LayerCall& call, std::byte* dx, const std::byte* dy, const Arrays& at,
                      std::size_t tile) const;
  /// inner of x[N, I].
  void adapt_inputs(const LayerCall& call, const std::byte* x, const Arrays& at) const;
  /// y += B(inner), of all of y or the tile's.
  void adapt_outputs(const LayerCall& call, std::byte* y, const Arrays& at, std::size_t tile) const;
  /// d_inner of all of dy, or the tile's part of it.
  void adapt_d_inner(const LayerCall& call, const std::byte* dy, const Arrays& at, std::size_t tile) const;
  /// dx[N, I] += A's part.
  void adapt_d_inputs(const LayerCall& call, std::byte* dx, const Arrays& at) const;
  /// Puts a tile's x[N, I/S] among its columns of `joined`.
  void join(const LayerCall& call, const std::byte* x, const Arrays& at, std::size_t tile) const;
  /// x, or a copy of which the adapter's dropout has taken its part.
  [[nodiscard]] const std::byte* dropped(const LayerCall& call, const Adapter& adapter, const std::byte* x,
                                         const Arrays& at) const;
  void drop(const LayerCall& call, const Adapter& adapter, std::byte* values) const;
  /// Outputs that an adapter has in y, as a tile sees it, and what lies before them: of B's rows, and of y's columns.
  struct AdaptedOutputs {
    std::size_t channels, first_row, column;
    std::size_t stride;  ///< elements from a row of y to the next, where they are some of more
  };
  [[nodiscard]] AdaptedOutputs outputs_of(const Adapter& adapter, std::size_t tile) const;

  /// The product of a tile's run with x, or with dy, as one without gaps whose result nothing else joins: what GELU
  /// may be computed along with. None: it may not.
  [[nodiscard]] const Run* plain_run(std::size_t tile) const;
  [[nodiscard]] MatmulShape forward_shape(const LayerCall& call, const Run& run) const;
  [[nodiscard]] MatmulShape backward_shape(const LayerCall& call, const Run& run) const;
  /// Whether backward_matrix() computes the bias's gradient as well, in the same product.
  [[nodiscard]] bool takes_bias_along(const LayerCall& call) const;

  /// Of weights, whose outputs have `elements` each, or of biases.
  static void append(std::vector<Run>& runs, const Run& next, std::size_t elements);
  [[nodiscard]] const std::byte* bias_of(const LayerCall& call, const Run& weight) const;

  [[nodiscard]] bool sums_outputs() const {
    return tiles_.size() > 1 && along_ == LinearOptions::Cut::Along::inputs;
  }
  [[nodiscard]] bool sums_inputs() const { return tiles_.size() > 1 && !sums_outputs(); }
  [[nodiscard]] bool outputs_apart() const { return row_ < out_; }
  [[nodiscard]] bool is_last(std::size_t tile) const { return tile + 1 == tiles_.size(); }
  /// Elements from a row of y to the next, where the run is some columns of it.
  [[nodiscard]] std::size_t stride_of(const Run& run) const { return run.channels < row_ ? row_ : 0; }

  std::size_t in_, out_ = 0;
  std::size_t tile_in_ = 0;  ///< columns of x, as a tile sees it
  std::size_t row_ = 0;      ///< columns of y, likewise
  LinearOptions::Layout layout_;
  LinearOptions::Cut::Along along_;
  Precision precision_;
  Tiles tiles_;
  std::vector<Run> weights_;
  std::vector<Run> biases_;  ///< empty: there are none
  std::vector<Adapter> adapters_;
  std::size_t rank_ = 0;
  float factor_ = 0, dropout_ = 0;
};

}  // namespace ranvier::models

// A transformer block whose four matrices are in tiles (memory-centric tiling, ZeRO-Infinity §5.1.3). A part of a
// call computes with one tile: with columns of c_attn, then with columns of attention's c_proj, then with columns
// of c_fc and the rows of the MLP's c_proj that go with them. Norms and biases are small and stay one unit, which
// the first part of a call copies to where the others find it.
#include "models/gpt_block_layer.hpp"
#include "models/ops/fused_matmul.hpp"
#include "models/ops/layer_norm.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <fmt/core.h>

#include <array>

namespace ranvier::models {
namespace {

/// What is not tiled, in the order of the unit "h.<index>".
enum Small : std::size_t {
  ln_1_weight,
  ln_1_bias,
  c_attn_bias,
  attn_proj_bias,
  ln_2_weight,
  ln_2_bias,
  c_fc_bias,
  mlp_proj_bias,
  small_count
};

/// Rows [row, row + rows) and columns [column, column + columns) of a matrix.
ParameterSpec tile_of(const ParameterSpec& matrix, std::size_t row, std::size_t rows, std::size_t column,
                      std::size_t columns) {
  ParameterSpec tile = matrix;
  tile.shape = {rows, columns};
  tile.tile = Tile{matrix.shape, row, column};
  return tile;
}

/// The small unit, then the tiles of c_attn, of attention's c_proj and of the MLP.
std::vector<UnitSpec> tiled_units(const GptOptions& options, int index) {
  const UnitSpec whole = gpt_block_unit(options, index);
  const auto tiles = static_cast<std::size_t>(options.tile);
  std::vector<UnitSpec> units{{whole.name, {}}};
  std::vector<const ParameterSpec*> matrices;
  for (const ParameterSpec& parameter : whole.parameters) {
    if (parameter.shape.size() == 1) {
      units[0].parameters.push_back(parameter);
    } else {
      matrices.push_back(&parameter);
    }
  }
  const auto columns = [&](const ParameterSpec& matrix, std::size_t t) {
    const std::size_t width = matrix.shape[1] / tiles;
    return tile_of(matrix, 0, matrix.shape[0], t * width, width);
  };
  const auto rows = [&](const ParameterSpec& matrix, std::size_t t) {
    const std::size_t height = matrix.shape[0] / tiles;
    return tile_of(matrix, t * height, height, 0, matrix.shape[1]);
  };
  const auto add = [&](const char* name, std::size_t t, std::vector<ParameterSpec> parameters) {
    units.push_back({fmt::format("{}.{}.{}", whole.name, name, t), std::move(parameters)});
  };
  for (std::size_t t = 0; t < tiles; ++t) add("attn.c_attn", t, {columns(*matrices[0], t)});
  for (std::size_t t = 0; t < tiles; ++t) add("attn.c_proj", t, {columns(*matrices[1], t)});
  for (std::size_t t = 0; t < tiles; ++t) add("mlp", t, {columns(*matrices[2], t), rows(*matrices[3], t)});
  return units;
}

/// With S tiles, `fc` and `d_fc` are [S, N, 4C/S].
struct Arrays : GptBlockArrays {
  Arrays(const GptOptions& options, const MicrobatchShape& shape, std::size_t small_elements)
      : GptBlockArrays(options, shape) {
    const auto N = static_cast<std::size_t>(shape.samples) * static_cast<std::size_t>(shape.positions);
    const auto C = static_cast<std::size_t>(options.hidden);
    const std::size_t element = size_of(options.precision.compute);
    small = workspace.add(small_elements, element);
    sum = element < sizeof(float) ? workspace.add(N * C, sizeof(float)) : narrow;
    hidden = workspace.add(N * 4 * C / static_cast<std::size_t>(options.tile), element);
    d_middle = options.dropout > 0 ? workspace.add(N * C, element) : hidden;
    c_fc_sums = workspace.add(4 * C, sizeof(float));
    mlp_proj_sums = workspace.add(C, sizeof(float));
  }

  std::size_t small;     ///< workspace: the small unit
  std::size_t sum;       ///< workspace [N, C] float: a sum over tiles; in fp32 it is summed where it belongs
  std::size_t hidden;    ///< workspace [N, 4C/S]: GELU's output
  std::size_t d_middle;  ///< workspace [N, C], with dropout

  /// Workspace [4C] and [C] float: the gradients of the MLP's biases, for which the last part has a place.
  std::size_t c_fc_sums, mlp_proj_sums;
};

class TiledGptBlock final : public GptBlockLayer {
 public:
  TiledGptBlock(const GptOptions& options, int index, const Tuning& tuning)
      : GptBlockLayer(options, index),
        tiles_(static_cast<std::size_t>(options.tile)),
        units_(tiled_units(options, index)) {
    const bool trained = tuned(gpt_block_unit(options, index), tuning).trained;
    for (UnitSpec& unit : units_) unit.trained = trained;
    for (std::size_t i = 0; i < small_count; ++i) offsets_[i] = units_[0].offset(i);
  }

  const std::string& name() const noexcept override { return units_[0].name; }
  std::span<const UnitSpec> units() const noexcept override { return units_; }

  LayerParts parts() const override {
    LayerParts parts;
    for (const Product product : {Product::c_attn, Product::attn_proj, Product::mlp}) {
      for (std::size_t t = 0; t < tiles_; ++t) parts.forward.push_back({unit_of(product, t)});
    }
    for (const Product product : {Product::mlp, Product::attn_proj, Product::c_attn}) {
      for (std::size_t t = 0; t < tiles_; ++t) parts.backward_input.push_back({unit_of(product, t)});
    }
    parts.backward_weight = parts.backward_input;
    parts.backward_weight.push_back({0});
    parts.forward.front().push_back(0);
    parts.backward_input.front().push_back(0);
    return parts;
  }

  LayerMemory memory(MicrobatchShape shape) const override {
    const Arrays arrays(options_, shape, units_[0].elements());
    return {arrays.saved.bytes(), arrays.deferred.bytes(), arrays.workspace.bytes()};
  }

  void forward(const LayerCall& call, const std::byte* input, std::byte* output) override {
    const Arrays at = arrays(call);
    const std::size_t N = rows(call), C = channels_, tile = call.part % tiles_;
    std::byte *const saved = call.saved, *const work = call.workspace;
    const bool last = tile + 1 == tiles_;

    if (call.part == 0) {
      runtime::copy(call.stream, work + at.small, call.parameters[0], units_[0].elements() * size_of(dtype_));
      norm_forward(call, at, at.norm_1, input, kept(call, at, ln_1_weight), kept(call, at, ln_1_bias));
    }
    if (call.part < tiles_) {
      columns_of_product(call, at, Product::c_attn, saved + at.qkv, 3 * C, work + at.narrow, c_attn_bias);
      if (last) attend(call, at);
    } else if (call.part < 2 * tiles_) {
      columns_of_product(call, at, Product::attn_proj, output, C, saved + at.attention, attn_proj_bias);
      if (!last) return;
      drop(call, output, GptDropoutPlace::attention_branch);
      norm_forward(call, at, at.norm_2, input, kept(call, at, ln_2_weight), kept(call, at, ln_2_bias), output,
                   saved + at.middle);
    } else {
      const std::size_t width = 4 * C / tiles_;
      std::byte* const fc = saved + at.fc + tile * N * width * size_of(dtype_);
      matmul_gelu(call.stream, {.m = N, .n = width, .k = C},
                  {.c = fc,
                   .c_dtype = dtype_,
                   .a = work + at.narrow,
                   .b = weight(call, Product::mlp, tile, 0),
                   .dtype = dtype_,
                   .bias = kept(call, at, c_fc_bias) + tile * width * size_of(dtype_)},
                  work + at.hidden);
      add_product(call, at, output, {.m = N, .n = C, .k = width}, work + at.hidden,
                  weight(call, Product::mlp, tile, 1), kept(call, at, mlp_proj_bias));
      if (!last) return;
      drop(call, output, GptDropoutPlace::mlp_branch);
      runtime::add(call.stream, output, saved + at.middle, dtype_, N * C);
    }
  }

  void backward_input(const LayerCall& call, const std::byte* input, const std::byte* output_gradient,
                      std::byte* input_gradient) override {
    const Arrays at = arrays(call);
    const std::size_t N = rows(call), C = channels_, tile = call.part % tiles_;
    std::byte *const saved = call.saved, *const later = call.deferred, *const work = call.workspace;
    const bool last = tile + 1 == tiles_;
    // Where nothing is dropped, the gradient of the residual stream is the projection's as well.
    std::byte* const d_middle = options_.dropout > 0 ? work + at.d_middle : later + at.d_attn_proj;

    if (call.part == 0) {
      keep_norm(call, at.norm_1, parameter(call, ln_1_weight), parameter(call, ln_1_bias));
      keep_norm(call, at.norm_2, parameter(call, ln_2_weight), parameter(call, ln_2_bias));
      branch_gradient(call, later + at.d_mlp_proj, output_gradient, GptDropoutPlace::mlp_branch);
    }
    if (call.part < tiles_) {
      const std::size_t width = 4 * C / tiles_, begin = tile * N * width * size_of(dtype_);
      matmul_gelu_backward(call.stream, {.m = N, .n = width, .k = C, .transpose_b = true},
                           {.c = later + at.d_fc + begin,
                            .c_dtype = dtype_,
                            .a = later + at.d_mlp_proj,
                            .b = weight(call, Product::mlp, tile, 1),
                            .dtype = dtype_},
                           saved + at.fc + begin);
      add_product(call, at, work + at.narrow, {.m = N, .n = C, .k = width, .transpose_b = true},
                  later + at.d_fc + begin, weight(call, Product::mlp, tile, 0), nullptr);
      if (!last) return;
      norm_backward(call, at, at.norm_2, d_middle, saved + at.middle, output_gradient);
      if (d_middle != later + at.d_attn_proj)
        branch_gradient(call, later + at.d_attn_proj, d_middle, GptDropoutPlace::attention_branch);
    } else if (call.part < 2 * tiles_) {
      columns_of_gradient(call, at, Product::attn_proj, later + at.d_attn_proj, C);
      if (last) attend_backward(call, at);
    } else {
      columns_of_gradient(call, at, Product::c_attn, later + at.d_qkv, 3 * C);
      if (last) norm_backward(call, at, at.norm_1, input_gradient, input, d_middle);
    }
  }

  void backward_weight(const LayerCall& call, const std::byte* input) override {
    const Arrays at = arrays(call);
    const std::size_t N = rows(call), C = channels_, tile = call.part % tiles_;
    std::byte *const saved = call.saved, *const later = call.deferred, *const work = call.workspace;

    if (call.part < tiles_) {
      if (tile == 0) norm_again(call, at, at.norm_2, saved + at.middle);
      const std::size_t width = 4 * C / tiles_, begin = tile * N * width * size_of(dtype_);
      float* const c_fc_sums = floats(work + at.c_fc_sums) + tile * width;
      float* const mlp_proj_sums = tile == 0 ? floats(work + at.mlp_proj_sums) : nullptr;
      weight_gradient(call, Product::mlp, 1, saved + at.fc + begin, width, later + at.d_mlp_proj, C, C,
                      mlp_proj_sums);
      weight_gradient(call, Product::mlp, 0, work + at.narrow, C, later + at.d_fc + begin, width, width, c_fc_sums);
    } else if (call.part < 2 * tiles_) {
      const std::size_t width = C / tiles_;
      weight_gradient(call, Product::attn_proj, 0, saved + at.attention, C,
                      later + at.d_attn_proj + tile * width * size_of(dtype_), width, C);
    } else if (call.part < 3 * tiles_) {
      if (tile == 0) norm_again(call, at, at.norm_1, input);
      const std::size_t width = 3 * C / tiles_;
      weight_gradient(call, Product::c_attn, 0, work + at.narrow, C,
                      later + at.d_qkv + tile * width * size_of(dtype_), width, 3 * C);
    } else {
      const runtime::DType gradient_dtype = options_.precision.gradient;
      store_gradient(call.stream, gradient(call, mlp_proj_bias), gradient_dtype, floats(work + at.mlp_proj_sums), C,
                     call.accumulate);
      store_gradient(call.stream, gradient(call, c_fc_bias), gradient_dtype, floats(work + at.c_fc_sums), 4 * C,
                     call.accumulate);
      // Tiles of these have columns of rows: one pass over whole rows is what a GPU reads best.
      column_sums(call.stream, gradient(call, attn_proj_bias), gradient_dtype, later + at.d_attn_proj, dtype_, N, C,
                  call.accumulate);
      column_sums(call.stream, gradient(call, c_attn_bias), gradient_dtype, later + at.d_qkv, dtype_, N, 3 * C,
                  call.accumulate);
      norm_gradient(call, at.norm_2, gradient(call, ln_2_weight), gradient(call, ln_2_bias));
      norm_gradient(call, at.norm_1, gradient(call, ln_1_weight), gradient(call, ln_1_bias));
    }
  }

 private:
  enum class Product : std::size_t { c_attn, attn_proj, mlp };

  Arrays arrays(const LayerCall& call) const {
    expect_planned_threads(call, units_[0].name);
    return {options_, call.shape, units_[0].elements()};
  }

  [[nodiscard]] std::size_t unit_of(Product product, std::size_t tile) const {
    return 1 + static_cast<std::size_t>(product) * tiles_ + tile;
  }

  const std::byte* weight(const LayerCall& call, Product product, std::size_t tile, std::size_t matrix) const {
    const std::size_t unit = unit_of(product, tile);
    return call.parameters[unit] + units_[unit].offset(matrix) * size_of(dtype_);
  }

  /// A norm or bias of the copy that the first part made.
  const std::byte* kept(const LayerCall& call, const Arrays& at, Small which) const {
    return call.workspace + at.small + offsets_[which] * size_of(dtype_);
  }

  const std::byte* parameter(const LayerCall& call, Small which) const {
    return call.parameters[0] + offsets_[which] * size_of(dtype_);
  }

  /// This part's columns of y[N, out] = x[N, C] · weight[C, out] + bias.
  void columns_of_product(const LayerCall& call, const Arrays& at, Product product, std::byte* y, std::size_t out,
                          const std::byte* x, Small bias) const {
    const std::size_t tile = call.part % tiles_, width = out / tiles_, begin = tile * width * size_of(dtype_);
    matmul(call.stream, {.m = rows(call), .n = width, .k = channels_, .c_stride = out},
           {.c = y + begin,
            .c_dtype = dtype_,
            .a = x,
            .b = weight(call, product, tile, 0),
            .dtype = dtype_,
            .bias = kept(call, at, bias) + begin});
  }

  /// What this part's columns of dy[N, out] add to narrow[N, C] = dy · weight[C, out]ᵀ.
  void columns_of_gradient(const LayerCall& call, const Arrays& at, Product product, const std::byte* dy,
                           std::size_t out) const {
    const std::size_t tile = call.part % tiles_, width = out / tiles_;
    add_product(call, at, call.workspace + at.narrow,
                {.m = rows(call), .n = channels_, .k = width, .transpose_b = true, .a_stride = out},
                dy + tile * width * size_of(dtype_), weight(call, product, tile, 0), nullptr);
  }

  /// A term of a sum over tiles, which is in `to` [N, C] after the last of them, rounded once.
  void add_product(const LayerCall& call, const Arrays& at, std::byte* to, const MatmulShape& shape,
                   const std::byte* a, const std::byte* b, const std::byte* bias) const {
    const std::size_t tile = call.part % tiles_;
    const bool apart = dtype_ != runtime::DType::f32;
    std::byte* const sum = apart ? call.workspace + at.sum : to;
    matmul(call.stream, shape,
           {.c = sum,
            .c_dtype = runtime::DType::f32,
            .a = a,
            .b = b,
            .dtype = dtype_,
            .bias = tile == 0 ? bias : nullptr,
            .accumulate = tile > 0});
    if (!apart || tile + 1 < tiles_) return;
    runtime::cast(call.stream, to, dtype_, sum, runtime::DType::f32, shape.m * shape.n);
  }

  /// d_weight[in, out] (+)= x[N, in]ᵀ · dy[N, out] of this part's tile; rows of dy are `stride` apart. With `sums`,
  /// where they have no gaps, also sums[out] = Σ dy.
  void weight_gradient(const LayerCall& call, Product product, std::size_t matrix, const std::byte* x,
                       std::size_t in, const std::byte* dy, std::size_t out, std::size_t stride,
                       float* sums = nullptr) const {
    const runtime::DType gradient_dtype = options_.precision.gradient;
    const std::size_t unit = unit_of(product, call.part % tiles_);
    const MatmulShape shape{.m = in, .n = out, .k = rows(call), .transpose_a = true, .b_stride = stride};
    const MatmulArrays arrays{.c = call.gradients[unit] + units_[unit].offset(matrix) * size_of(gradient_dtype),
                              .c_dtype = gradient_dtype,
                              .a = x,
                              .b = dy,
                              .dtype = dtype_,
                              .accumulate = call.accumulate};
    sums == nullptr ? matmul(call.stream, shape, arrays)
                    : matmul_column_sums(call.stream, shape, arrays, {.sums = sums});
  }

  std::byte* gradient(const LayerCall& call, Small which) const {
    return call.gradients[0] + offsets_[which] * size_of(options_.precision.gradient);
  }

  std::size_t tiles_;
  std::vector<UnitSpec> units_;
  std::array<std::size_t, small_count> offsets_;
};

}  // namespace

std::unique_ptr<Layer> make_tiled_gpt_block(const GptOptions& options, int index, const Tuning& tuning) {
  return std::make_unique<TiledGptBlock>(options, index, tuning);
}

}  // namespace ranvier::models

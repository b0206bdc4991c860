// A transformer block whose four matrices are in tiles (memory-centric tiling, ZeRO-Infinity §5.1.3). A part of a
// call computes with one tile: with columns of c_attn, then with columns of attention's c_proj, then with columns
// of c_fc and the rows of the MLP's c_proj that go with them. Norms and biases are small and stay one unit, which
// the first part of a call copies to where the others find it.
#include "models/gpt_layers.hpp"
#include "models/memory_layout.hpp"
#include "models/ops/attention.hpp"
#include "models/ops/dropout.hpp"
#include "models/ops/gelu.hpp"
#include "models/ops/layer_norm.hpp"
#include "models/ops/matmul.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <fmt/core.h>

#include <algorithm>
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

/// Where a call's arrays lie. Letters: N = B·T rows, C channels, H heads, S tiles.
struct Arrays {
  Arrays(const GptOptions& options, const MicrobatchShape& shape, std::size_t small_elements) {
    const auto N = static_cast<std::size_t>(shape.samples) * static_cast<std::size_t>(shape.positions);
    const auto C = static_cast<std::size_t>(options.hidden);
    const auto H = static_cast<std::size_t>(options.heads);
    const std::size_t element = size_of(options.precision.compute);

    mean_1 = saved.add(N, sizeof(float));
    rstd_1 = saved.add(N, sizeof(float));
    mean_2 = saved.add(N, sizeof(float));
    rstd_2 = saved.add(N, sizeof(float));
    logsumexp = saved.add(N * H, sizeof(float));
    qkv = saved.add(N * 3 * C, element);
    attention = saved.add(N * C, element);
    middle = saved.add(N * C, element);
    fc = saved.add(N * 4 * C, element);

    sums_1 = deferred.add(2 * C, sizeof(float));
    sums_2 = deferred.add(2 * C, sizeof(float));
    norm_1 = deferred.add(2 * C, element);
    norm_2 = deferred.add(2 * C, element);
    d_qkv = deferred.add(N * 3 * C, element);
    d_attn_proj = deferred.add(N * C, element);
    d_fc = deferred.add(N * 4 * C, element);
    d_mlp_proj = deferred.add(N * C, element);

    small = workspace.add(small_elements, element);
    narrow = workspace.add(N * C, element);
    sum = element < sizeof(float) ? workspace.add(N * C, sizeof(float)) : narrow;
    hidden = workspace.add(N * 4 * C / static_cast<std::size_t>(options.tile), element);
    d_middle = options.dropout > 0 ? workspace.add(N * C, element) : hidden;
    scratch = workspace.add(1, std::max(attention_workspace_bytes(attention_shape(options, shape),
                                                                  options.precision.compute, shape.threads),
                                        layer_norm_workspace_bytes({N, C})));
  }

  static AttentionShape attention_shape(const GptOptions& options, const MicrobatchShape& shape) {
    return {shape.samples, shape.positions, options.heads, options.hidden / options.heads};
  }

  MemoryLayout saved, deferred, workspace;
  std::size_t mean_1, rstd_1, mean_2, rstd_2;
  std::size_t logsumexp;       ///< [B, H, T]
  std::size_t qkv;             ///< [N, 3C]
  std::size_t attention;       ///< [N, C]
  std::size_t middle;          ///< [N, C]: the residual stream between attention and MLP
  std::size_t fc;              ///< [S, N, 4C/S]: before GELU; backward_input replaces it by GELU's output
  std::size_t sums_1, sums_2;  ///< [2, C] float: gradients of the norms' weights and biases
  std::size_t norm_1, norm_2;  ///< [2, C]: the norms' weights and biases, for the parts and calls that follow
  std::size_t d_qkv, d_attn_proj, d_fc, d_mlp_proj;  ///< gradients of the products' results; d_fc [S, N, 4C/S]
  std::size_t small;                                 ///< the small unit
  std::size_t narrow;                                ///< [N, C]: a norm's output, or a gradient
  std::size_t sum;       ///< [N, C] float: a sum over tiles; in fp32 it is summed where it belongs
  std::size_t hidden;    ///< [N, 4C/S]: GELU's output
  std::size_t d_middle;  ///< [N, C], with dropout
  std::size_t scratch;
};

class TiledGptBlock final : public Layer {
 public:
  TiledGptBlock(const GptOptions& options, int index)
      : options_(options),
        index_(index),
        dtype_(options.precision.compute),
        channels_(static_cast<std::size_t>(options.hidden)),
        tiles_(static_cast<std::size_t>(options.tile)),
        units_(tiled_units(options, index)) {
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

  double flops_per_sample(int positions) const override { return gpt_block_flops(options_, positions); }

  std::size_t output_elements(int positions) const override {
    return static_cast<std::size_t>(positions) * channels_;
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
      layer_norm_forward(call.stream, {N, C}, dtype_,
                         {.y = work + at.narrow,
                          .mean = floats(saved + at.mean_1),
                          .rstd = floats(saved + at.rstd_1),
                          .x = input,
                          .weight = kept(call, at, ln_1_weight),
                          .bias = kept(call, at, ln_1_bias)});
    }
    if (call.part < tiles_) {
      columns_of_product(call, at, Product::c_attn, saved + at.qkv, 3 * C, work + at.narrow, c_attn_bias);
      if (!last) return;
      attention_forward(call.stream, Arrays::attention_shape(options_, call.shape), dtype_, saved + at.attention,
                        floats(saved + at.logsumexp), saved + at.qkv, drop_rule(call, GptDropoutPlace::attention),
                        work + at.scratch);
    } else if (call.part < 2 * tiles_) {
      columns_of_product(call, at, Product::attn_proj, output, C, saved + at.attention, attn_proj_bias);
      if (!last) return;
      drop(call, output, GptDropoutPlace::attention_branch);
      layer_norm_forward(call.stream, {N, C}, dtype_,
                         {.y = work + at.narrow,
                          .mean = floats(saved + at.mean_2),
                          .rstd = floats(saved + at.rstd_2),
                          .x = input,
                          .weight = kept(call, at, ln_2_weight),
                          .bias = kept(call, at, ln_2_bias),
                          .branch = output,
                          .sum = saved + at.middle});
    } else {
      const std::size_t width = 4 * C / tiles_;
      std::byte* const fc = saved + at.fc + tile * N * width * size_of(dtype_);
      matmul(call.stream, {.m = N, .n = width, .k = C},
             {.c = fc,
              .c_dtype = dtype_,
              .a = work + at.narrow,
              .b = weight(call, Product::mlp, tile, 0),
              .dtype = dtype_,
              .bias = kept(call, at, c_fc_bias) + tile * width * size_of(dtype_)});
      gelu_forward(call.stream, dtype_, work + at.hidden, fc, N * width);
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
      keep_norm(call, later + at.norm_1, ln_1_weight, ln_1_bias);
      keep_norm(call, later + at.norm_2, ln_2_weight, ln_2_bias);
      runtime::copy(call.stream, later + at.d_mlp_proj, output_gradient, N * C * size_of(dtype_));
      drop(call, later + at.d_mlp_proj, GptDropoutPlace::mlp_branch);
    }
    if (call.part < tiles_) {
      const std::size_t width = 4 * C / tiles_, begin = tile * N * width * size_of(dtype_);
      matmul(call.stream, {.m = N, .n = width, .k = C, .transpose_b = true},
             {.c = later + at.d_fc + begin,
              .c_dtype = dtype_,
              .a = later + at.d_mlp_proj,
              .b = weight(call, Product::mlp, tile, 1),
              .dtype = dtype_});
      gelu_backward(call.stream, dtype_, later + at.d_fc + begin, saved + at.fc + begin, N * width);
      add_product(call, at, work + at.narrow, {.m = N, .n = C, .k = width, .transpose_b = true},
                  later + at.d_fc + begin, weight(call, Product::mlp, tile, 0), nullptr);
      if (!last) return;
      layer_norm_backward(call.stream, {N, C}, dtype_,
                          {.dx = d_middle,
                           .sums = floats(later + at.sums_2),
                           .dy = work + at.narrow,
                           .x = saved + at.middle,
                           .mean = floats(saved + at.mean_2),
                           .rstd = floats(saved + at.rstd_2),
                           .weight = later + at.norm_2,
                           .residual = output_gradient,
                           .workspace = work + at.scratch});
      if (d_middle == later + at.d_attn_proj) return;
      runtime::copy(call.stream, later + at.d_attn_proj, d_middle, N * C * size_of(dtype_));
      drop(call, later + at.d_attn_proj, GptDropoutPlace::attention_branch);
    } else if (call.part < 2 * tiles_) {
      columns_of_gradient(call, at, Product::attn_proj, later + at.d_attn_proj, C);
      if (!last) return;
      attention_backward(call.stream, Arrays::attention_shape(options_, call.shape), dtype_, later + at.d_qkv,
                         work + at.narrow, saved + at.qkv, saved + at.attention, floats(saved + at.logsumexp),
                         drop_rule(call, GptDropoutPlace::attention), work + at.scratch);
    } else {
      columns_of_gradient(call, at, Product::c_attn, later + at.d_qkv, 3 * C);
      if (!last) return;
      layer_norm_backward(call.stream, {N, C}, dtype_,
                          {.dx = input_gradient,
                           .sums = floats(later + at.sums_1),
                           .dy = work + at.narrow,
                           .x = input,
                           .mean = floats(saved + at.mean_1),
                           .rstd = floats(saved + at.rstd_1),
                           .weight = later + at.norm_1,
                           .residual = d_middle,
                           .workspace = work + at.scratch});
    }
  }

  void backward_weight(const LayerCall& call, const std::byte* input) override {
    const Arrays at = arrays(call);
    const std::size_t N = rows(call), C = channels_, tile = call.part % tiles_;
    std::byte *const saved = call.saved, *const later = call.deferred, *const work = call.workspace;
    const auto norm_again = [&](std::size_t mean, std::size_t rstd, const std::byte* x, std::size_t norm) {
      layer_norm_again(call.stream, {N, C}, dtype_, work + at.narrow, floats(saved + mean), floats(saved + rstd), x,
                       later + norm, later + norm + C * size_of(dtype_));
    };

    if (call.part < tiles_) {
      if (tile == 0) norm_again(at.mean_2, at.rstd_2, saved + at.middle, at.norm_2);
      const std::size_t width = 4 * C / tiles_, begin = tile * N * width * size_of(dtype_);
      weight_gradient(call, Product::mlp, 1, saved + at.fc + begin, width, later + at.d_mlp_proj, C, C);
      weight_gradient(call, Product::mlp, 0, work + at.narrow, C, later + at.d_fc + begin, width, width);
    } else if (call.part < 2 * tiles_) {
      const std::size_t width = C / tiles_;
      weight_gradient(call, Product::attn_proj, 0, saved + at.attention, C,
                      later + at.d_attn_proj + tile * width * size_of(dtype_), width, C);
    } else if (call.part < 3 * tiles_) {
      if (tile == 0) norm_again(at.mean_1, at.rstd_1, input, at.norm_1);
      const std::size_t width = 3 * C / tiles_;
      weight_gradient(call, Product::c_attn, 0, work + at.narrow, C,
                      later + at.d_qkv + tile * width * size_of(dtype_), width, 3 * C);
    } else {
      bias_gradient(call, mlp_proj_bias, 0, later + at.d_mlp_proj, C);
      const std::size_t width = 4 * C / tiles_;
      for (std::size_t t = 0; t < tiles_; ++t) {
        bias_gradient(call, c_fc_bias, t * width, later + at.d_fc + t * N * width * size_of(dtype_), width);
      }
      bias_gradient(call, attn_proj_bias, 0, later + at.d_attn_proj, C);
      bias_gradient(call, c_attn_bias, 0, later + at.d_qkv, 3 * C);
      norm_gradient(call, ln_2_weight, later + at.sums_2);
      norm_gradient(call, ln_1_weight, later + at.sums_1);
    }
  }

 private:
  enum class Product : std::size_t { c_attn, attn_proj, mlp };

  static float* floats(std::byte* memory) { return reinterpret_cast<float*>(memory); }

  Arrays arrays(const LayerCall& call) const {
    expect_planned_threads(call, units_[0].name);
    return {options_, call.shape, units_[0].elements()};
  }

  static std::size_t rows(const LayerCall& call) {
    return static_cast<std::size_t>(call.shape.samples) * static_cast<std::size_t>(call.shape.positions);
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

  void keep_norm(const LayerCall& call, std::byte* to, Small weight, Small bias) const {
    const std::size_t bytes = channels_ * size_of(dtype_);
    runtime::copy(call.stream, to, call.parameters[0] + offsets_[weight] * size_of(dtype_), bytes);
    runtime::copy(call.stream, to + bytes, call.parameters[0] + offsets_[bias] * size_of(dtype_), bytes);
  }

  Dropout drop_rule(const LayerCall& call, GptDropoutPlace place) const {
    return make_dropout(call.training ? options_.dropout : 0.0f, call.key.seed, call.key.step,
                        gpt_dropout_site(index_, place), call.key.first_sample);
  }

  void drop(const LayerCall& call, std::byte* values, GptDropoutPlace place) const {
    dropout(call.stream, values, dtype_, call.shape.samples, output_elements(call.shape.positions),
            drop_rule(call, place));
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

  /// d_weight[in, out] (+)= x[N, in]ᵀ · dy[N, out] of this part's tile; rows of dy are `stride` apart.
  void weight_gradient(const LayerCall& call, Product product, std::size_t matrix, const std::byte* x,
                       std::size_t in, const std::byte* dy, std::size_t out, std::size_t stride) const {
    const runtime::DType gradient_dtype = options_.precision.gradient;
    const std::size_t unit = unit_of(product, call.part % tiles_);
    matmul(call.stream, {.m = in, .n = out, .k = rows(call), .transpose_a = true, .b_stride = stride},
           {.c = call.gradients[unit] + units_[unit].offset(matrix) * size_of(gradient_dtype),
            .c_dtype = gradient_dtype,
            .a = x,
            .b = dy,
            .dtype = dtype_,
            .accumulate = call.accumulate});
  }

  std::byte* gradient(const LayerCall& call, Small which, std::size_t element = 0) const {
    return call.gradients[0] + (offsets_[which] + element) * size_of(options_.precision.gradient);
  }

  void bias_gradient(const LayerCall& call, Small bias, std::size_t begin, const std::byte* dy,
                     std::size_t out) const {
    column_sums(call.stream, gradient(call, bias, begin), options_.precision.gradient, dy, dtype_, rows(call), out,
                call.accumulate);
  }

  /// A bias comes right after its weight.
  void norm_gradient(const LayerCall& call, Small weight, std::byte* sums) const {
    const runtime::DType gradient_dtype = options_.precision.gradient;
    store_gradient(call.stream, gradient(call, weight), gradient_dtype, floats(sums), channels_, call.accumulate);
    store_gradient(call.stream, gradient(call, static_cast<Small>(weight + 1)), gradient_dtype,
                   floats(sums) + channels_, channels_, call.accumulate);
  }

  GptOptions options_;
  int index_;
  runtime::DType dtype_;
  std::size_t channels_, tiles_;
  std::vector<UnitSpec> units_;
  std::array<std::size_t, small_count> offsets_;
};

}  // namespace

std::unique_ptr<Layer> make_tiled_gpt_block(const GptOptions& options, int index) {
  return std::make_unique<TiledGptBlock>(options, index);
}

}  // namespace ranvier::models

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
#include <cmath>

namespace ranvier::models {
namespace {

/// The block's parameters in the order of its unit, which is that of the checkpoint.
enum Parameter : std::size_t {
  ln_1_weight,
  ln_1_bias,
  c_attn_weight,
  c_attn_bias,
  attn_proj_weight,
  attn_proj_bias,
  ln_2_weight,
  ln_2_bias,
  c_fc_weight,
  c_fc_bias,
  mlp_proj_weight,
  mlp_proj_bias,
  parameter_count
};

}  // namespace

UnitSpec gpt_block_unit(const GptOptions& options, int index) {
  const std::string unit = fmt::format("h.{}", index);
  const auto C = static_cast<std::size_t>(options.hidden);
  const Initializer zeros{Initializer::Kind::zeros}, ones{Initializer::Kind::ones};
  const Initializer normal{Initializer::Kind::normal, 0.02f};
  const Initializer residual{Initializer::Kind::normal,
                             0.02f / std::sqrt(2.0f * static_cast<float>(options.layers))};
  UnitSpec spec{unit, {}};
  const auto add = [&](const char* name, std::vector<std::size_t> shape, const Initializer& initializer) {
    const bool matrix = shape.size() > 1;
    spec.parameters.push_back({unit + "." + name, std::move(shape), initializer, matrix});
  };
  add("ln_1.weight", {C}, ones);
  add("ln_1.bias", {C}, zeros);
  add("attn.c_attn.weight", {C, 3 * C}, normal);
  add("attn.c_attn.bias", {3 * C}, zeros);
  add("attn.c_proj.weight", {C, C}, residual);
  add("attn.c_proj.bias", {C}, zeros);
  add("ln_2.weight", {C}, ones);
  add("ln_2.bias", {C}, zeros);
  add("mlp.c_fc.weight", {C, 4 * C}, normal);
  add("mlp.c_fc.bias", {4 * C}, zeros);
  add("mlp.c_proj.weight", {4 * C, C}, residual);
  add("mlp.c_proj.bias", {C}, zeros);
  return spec;
}

/// 6 per parameter and position, and attention's two T × T products of C channels, forward once and
/// backward twice, at 2 each: 12 C T² (the half that causality spares is customarily counted).
double gpt_block_flops(const GptOptions& options, int positions) {
  double parameters = 0;
  for (const ParameterSpec& parameter : gpt_block_unit(options, 0).parameters) {
    parameters += static_cast<double>(parameter.elements());
  }
  return 6.0 * parameters * positions + 12.0 * options.hidden * positions * positions;
}

namespace {

/// Where a call's arrays lie. Letters: N = B·T rows, C channels, H heads.
///
/// Kept from forward, besides the input: 9 C per row. The norms' outputs and GELU's are computed again in the
/// backward pass, which costs less than a hundredth of the products beside it.
struct Arrays {
  Arrays(const GptOptions& options, const MicrobatchShape& shape) {
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

    narrow = workspace.add(N * C, element);
    wide = workspace.add(N * 4 * C, element);
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
  std::size_t fc;              ///< [N, 4C]: before GELU; backward_input replaces it by GELU's output
  std::size_t sums_1, sums_2;  ///< [2, C] float: gradients of the norms' weights and biases
  std::size_t norm_1, norm_2;  ///< [2, C]: the norms' weights and biases, for what backward_weight computes again
  std::size_t d_qkv, d_attn_proj, d_fc, d_mlp_proj;  ///< gradients of the four products' results
  std::size_t narrow, wide, scratch;                 ///< [N, C], [N, 4C], whatever a kernel needs
};

class GptBlock final : public Layer {
 public:
  GptBlock(const GptOptions& options, int index)
      : options_(options),
        index_(index),
        dtype_(options.precision.compute),
        channels_(static_cast<std::size_t>(options.hidden)),
        units_{gpt_block_unit(options, index)} {
    for (std::size_t i = 0; i < parameter_count; ++i) offsets_[i] = units_[0].offset(i);
  }

  const std::string& name() const noexcept override { return units_[0].name; }
  std::span<const UnitSpec> units() const noexcept override { return units_; }

  double flops_per_sample(int positions) const override { return gpt_block_flops(options_, positions); }

  std::size_t output_elements(int positions) const override {
    return static_cast<std::size_t>(positions) * channels_;
  }

  LayerMemory memory(MicrobatchShape shape) const override {
    const Arrays arrays(options_, shape);
    return {arrays.saved.bytes(), arrays.deferred.bytes(), arrays.workspace.bytes()};
  }

  void forward(const LayerCall& call, const std::byte* input, std::byte* output) override {
    const Arrays at = arrays(call);
    const std::size_t N = rows(call), C = channels_;
    std::byte *const saved = call.saved, *const work = call.workspace;

    layer_norm_forward(call.stream, {N, C}, dtype_,
                       {.y = work + at.narrow,
                        .mean = floats(saved + at.mean_1),
                        .rstd = floats(saved + at.rstd_1),
                        .x = input,
                        .weight = parameter(call, ln_1_weight),
                        .bias = parameter(call, ln_1_bias)});
    product(call, saved + at.qkv, work + at.narrow, c_attn_weight, 3 * C, C);
    attention_forward(call.stream, Arrays::attention_shape(options_, call.shape), dtype_, saved + at.attention,
                      floats(saved + at.logsumexp), saved + at.qkv, drop_rule(call, GptDropoutPlace::attention),
                      work + at.scratch);
    product(call, output, saved + at.attention, attn_proj_weight, C, C);
    drop(call, output, GptDropoutPlace::attention_branch);

    layer_norm_forward(call.stream, {N, C}, dtype_,
                       {.y = work + at.narrow,
                        .mean = floats(saved + at.mean_2),
                        .rstd = floats(saved + at.rstd_2),
                        .x = input,
                        .weight = parameter(call, ln_2_weight),
                        .bias = parameter(call, ln_2_bias),
                        .branch = output,
                        .sum = saved + at.middle});
    product(call, saved + at.fc, work + at.narrow, c_fc_weight, 4 * C, C);
    gelu_forward(call.stream, dtype_, work + at.wide, saved + at.fc, N * 4 * C);
    product(call, output, work + at.wide, mlp_proj_weight, C, 4 * C);
    drop(call, output, GptDropoutPlace::mlp_branch);
    runtime::add(call.stream, output, saved + at.middle, dtype_, N * C);
  }

  void backward_input(const LayerCall& call, const std::byte* input, const std::byte* output_gradient,
                      std::byte* input_gradient) override {
    const Arrays at = arrays(call);
    const std::size_t N = rows(call), C = channels_;
    std::byte *const saved = call.saved, *const kept = call.deferred, *const work = call.workspace;

    keep_norm(call, kept + at.norm_1, ln_1_weight, ln_1_bias);
    keep_norm(call, kept + at.norm_2, ln_2_weight, ln_2_bias);
    runtime::copy(call.stream, kept + at.d_mlp_proj, output_gradient, N * C * size_of(dtype_));
    drop(call, kept + at.d_mlp_proj, GptDropoutPlace::mlp_branch);
    product_backward(call, kept + at.d_fc, kept + at.d_mlp_proj, mlp_proj_weight, C, 4 * C);
    gelu_backward(call.stream, dtype_, kept + at.d_fc, saved + at.fc, N * 4 * C);
    product_backward(call, work + at.narrow, kept + at.d_fc, c_fc_weight, 4 * C, C);

    // Where nothing is dropped, the gradient of the residual stream is the projection's as well.
    std::byte* const d_middle = options_.dropout > 0 ? work + at.wide : kept + at.d_attn_proj;
    layer_norm_backward(call.stream, {N, C}, dtype_,
                        {.dx = d_middle,
                         .sums = floats(kept + at.sums_2),
                         .dy = work + at.narrow,
                         .x = saved + at.middle,
                         .mean = floats(saved + at.mean_2),
                         .rstd = floats(saved + at.rstd_2),
                         .weight = parameter(call, ln_2_weight),
                         .residual = output_gradient,
                         .workspace = work + at.scratch});
    if (d_middle != kept + at.d_attn_proj) {
      runtime::copy(call.stream, kept + at.d_attn_proj, d_middle, N * C * size_of(dtype_));
      drop(call, kept + at.d_attn_proj, GptDropoutPlace::attention_branch);
    }
    product_backward(call, work + at.narrow, kept + at.d_attn_proj, attn_proj_weight, C, C);
    attention_backward(call.stream, Arrays::attention_shape(options_, call.shape), dtype_, kept + at.d_qkv,
                       work + at.narrow, saved + at.qkv, saved + at.attention, floats(saved + at.logsumexp),
                       drop_rule(call, GptDropoutPlace::attention), work + at.scratch);
    product_backward(call, work + at.narrow, kept + at.d_qkv, c_attn_weight, 3 * C, C);
    layer_norm_backward(call.stream, {N, C}, dtype_,
                        {.dx = input_gradient,
                         .sums = floats(kept + at.sums_1),
                         .dy = work + at.narrow,
                         .x = input,
                         .mean = floats(saved + at.mean_1),
                         .rstd = floats(saved + at.rstd_1),
                         .weight = parameter(call, ln_1_weight),
                         .residual = d_middle,
                         .workspace = work + at.scratch});
  }

  void backward_weight(const LayerCall& call, const std::byte* input) override {
    const Arrays at = arrays(call);
    const std::size_t N = rows(call), C = channels_;
    std::byte *const saved = call.saved, *const kept = call.deferred, *const work = call.workspace;

    weight_gradient(call, mlp_proj_weight, saved + at.fc, kept + at.d_mlp_proj, 4 * C, C);
    layer_norm_again(call.stream, {N, C}, dtype_, work + at.narrow, floats(saved + at.mean_2),
                     floats(saved + at.rstd_2), saved + at.middle, kept + at.norm_2,
                     kept + at.norm_2 + C * size_of(dtype_));
    weight_gradient(call, c_fc_weight, work + at.narrow, kept + at.d_fc, C, 4 * C);
    norm_gradient(call, ln_2_weight, kept + at.sums_2);
    weight_gradient(call, attn_proj_weight, saved + at.attention, kept + at.d_attn_proj, C, C);
    layer_norm_again(call.stream, {N, C}, dtype_, work + at.narrow, floats(saved + at.mean_1),
                     floats(saved + at.rstd_1), input, kept + at.norm_1, kept + at.norm_1 + C * size_of(dtype_));
    weight_gradient(call, c_attn_weight, work + at.narrow, kept + at.d_qkv, C, 3 * C);
    norm_gradient(call, ln_1_weight, kept + at.sums_1);
  }

 private:
  static float* floats(std::byte* memory) { return reinterpret_cast<float*>(memory); }

  Arrays arrays(const LayerCall& call) const {
    expect_planned_threads(call, units_[0].name);
    return {options_, call.shape};
  }

  static std::size_t rows(const LayerCall& call) {
    return static_cast<std::size_t>(call.shape.samples) * static_cast<std::size_t>(call.shape.positions);
  }

  const std::byte* parameter(const LayerCall& call, Parameter which) const {
    return call.parameters[0] + offsets_[which] * size_of(dtype_);
  }
  void keep_norm(const LayerCall& call, std::byte* to, Parameter weight, Parameter bias) const {
    const std::size_t bytes = channels_ * size_of(dtype_);
    runtime::copy(call.stream, to, parameter(call, weight), bytes);
    runtime::copy(call.stream, to + bytes, parameter(call, bias), bytes);
  }
  std::byte* gradient(const LayerCall& call, Parameter which) const {
    return call.gradients[0] + offsets_[which] * size_of(options_.precision.gradient);
  }
  /// A bias comes right after its weight.
  static Parameter bias_of(Parameter weight) { return static_cast<Parameter>(weight + 1); }

  Dropout drop_rule(const LayerCall& call, GptDropoutPlace place) const {
    return make_dropout(call.training ? options_.dropout : 0.0f, call.key.seed, call.key.step,
                        gpt_dropout_site(index_, place), call.key.first_sample);
  }

  void drop(const LayerCall& call, std::byte* values, GptDropoutPlace place) const {
    dropout(call.stream, values, dtype_, call.shape.samples, output_elements(call.shape.positions),
            drop_rule(call, place));
  }

  /// y[N, out] = x[N, in] · weight[in, out] + bias
  void product(const LayerCall& call, std::byte* y, const std::byte* x, Parameter weight, std::size_t out,
               std::size_t in) const {
    matmul(call.stream, {.m = rows(call), .n = out, .k = in},
           {.c = y,
            .c_dtype = dtype_,
            .a = x,
            .b = parameter(call, weight),
            .dtype = dtype_,
            .bias = parameter(call, bias_of(weight))});
  }

  /// dx[N, in] = dy[N, out] · weight[in, out]ᵀ
  void product_backward(const LayerCall& call, std::byte* dx, const std::byte* dy, Parameter weight,
                        std::size_t out, std::size_t in) const {
    matmul(call.stream, {.m = rows(call), .n = in, .k = out, .transpose_b = true},
           {.c = dx, .c_dtype = dtype_, .a = dy, .b = parameter(call, weight), .dtype = dtype_});
  }

  /// d_weight[in, out] (+)= x[N, in]ᵀ · dy[N, out], and the bias's likewise.
  void weight_gradient(const LayerCall& call, Parameter weight, const std::byte* x, const std::byte* dy,
                       std::size_t in, std::size_t out) const {
    const runtime::DType gradient_dtype = options_.precision.gradient;
    matmul(call.stream, {.m = in, .n = out, .k = rows(call), .transpose_a = true},
           {.c = gradient(call, weight),
            .c_dtype = gradient_dtype,
            .a = x,
            .b = dy,
            .dtype = dtype_,
            .accumulate = call.accumulate});
    column_sums(call.stream, gradient(call, bias_of(weight)), gradient_dtype, dy, dtype_, rows(call), out,
                call.accumulate);
  }

  void norm_gradient(const LayerCall& call, Parameter weight, std::byte* sums) const {
    const runtime::DType gradient_dtype = options_.precision.gradient;
    store_gradient(call.stream, gradient(call, weight), gradient_dtype, floats(sums), channels_, call.accumulate);
    store_gradient(call.stream, gradient(call, bias_of(weight)), gradient_dtype, floats(sums) + channels_,
                   channels_, call.accumulate);
  }

  GptOptions options_;
  int index_;
  runtime::DType dtype_;
  std::size_t channels_;
  std::array<UnitSpec, 1> units_;
  std::array<std::size_t, parameter_count> offsets_;
};

}  // namespace

std::unique_ptr<Layer> make_gpt_block(const GptOptions& options, int index) {
  return std::make_unique<GptBlock>(options, index);
}

}  // namespace ranvier::models

#include "models/gpt_block_layer.hpp"
#include "models/ops/fused_matmul.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <fmt/core.h>

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

struct Arrays : GptBlockArrays {
  Arrays(const GptOptions& options, const MicrobatchShape& shape) : GptBlockArrays(options, shape) {
    const auto N = static_cast<std::size_t>(shape.samples) * static_cast<std::size_t>(shape.positions);
    wide = workspace.add(N * 4 * static_cast<std::size_t>(options.hidden), size_of(options.precision.compute));
  }

  std::size_t wide;  ///< workspace [N, 4C]
};

class GptBlock final : public GptBlockLayer {
 public:
  GptBlock(const GptOptions& options, int index, const Tuning& tuning)
      : GptBlockLayer(options, index), units_{tuned(gpt_block_unit(options, index), tuning)} {
    for (std::size_t i = 0; i < parameter_count; ++i) offsets_[i] = units_[0].offset(i);
  }

  const std::string& name() const noexcept override { return units_[0].name; }
  std::span<const UnitSpec> units() const noexcept override { return units_; }

  LayerMemory memory(MicrobatchShape shape) const override {
    const Arrays arrays(options_, shape);
    return {arrays.saved.bytes(), arrays.deferred.bytes(), arrays.workspace.bytes()};
  }

  void forward(const LayerCall& call, const std::byte* input, std::byte* output) override {
    const Arrays at = arrays(call);
    const std::size_t N = rows(call), C = channels_;
    std::byte *const saved = call.saved, *const work = call.workspace;

    norm_forward(call, at, at.norm_1, input, parameter(call, ln_1_weight), parameter(call, ln_1_bias));
    product(call, saved + at.qkv, work + at.narrow, c_attn_weight, 3 * C, C);
    attend(call, at);
    product(call, output, saved + at.attention, attn_proj_weight, C, C);
    drop(call, output, GptDropoutPlace::attention_branch);

    norm_forward(call, at, at.norm_2, input, parameter(call, ln_2_weight), parameter(call, ln_2_bias), output,
                 saved + at.middle);
    matmul_gelu(call.stream, {.m = N, .n = 4 * C, .k = C},
                product_arrays(call, saved + at.fc, work + at.narrow, c_fc_weight), work + at.wide);
    if (call.training && options_.dropout > 0) {
      product(call, output, work + at.wide, mlp_proj_weight, C, 4 * C);
      drop(call, output, GptDropoutPlace::mlp_branch);
      runtime::add(call.stream, output, saved + at.middle, dtype_, N * C);
    } else {
      matmul_add(call.stream, {.m = N, .n = C, .k = 4 * C},
                 product_arrays(call, output, work + at.wide, mlp_proj_weight), saved + at.middle);
    }
  }

  void backward_input(const LayerCall& call, const std::byte* input, const std::byte* output_gradient,
                      std::byte* input_gradient) override {
    const Arrays at = arrays(call);
    const std::size_t N = rows(call), C = channels_;
    std::byte *const saved = call.saved, *const kept = call.deferred, *const work = call.workspace;

    keep_norm(call, at.norm_1, parameter(call, ln_1_weight), parameter(call, ln_1_bias));
    keep_norm(call, at.norm_2, parameter(call, ln_2_weight), parameter(call, ln_2_bias));
    branch_gradient(call, kept + at.d_mlp_proj, output_gradient, GptDropoutPlace::mlp_branch);
    matmul_gelu_backward(call.stream, {.m = N, .n = 4 * C, .k = C, .transpose_b = true},
                         {.c = kept + at.d_fc,
                          .c_dtype = dtype_,
                          .a = kept + at.d_mlp_proj,
                          .b = parameter(call, mlp_proj_weight),
                          .dtype = dtype_},
                         saved + at.fc);
    product_backward(call, work + at.narrow, kept + at.d_fc, c_fc_weight, 4 * C, C);

    // Where nothing is dropped, the gradient of the residual stream is the projection's as well.
    std::byte* const d_middle = options_.dropout > 0 ? work + at.wide : kept + at.d_attn_proj;
    norm_backward(call, at, at.norm_2, d_middle, saved + at.middle, output_gradient);
    if (d_middle != kept + at.d_attn_proj)
      branch_gradient(call, kept + at.d_attn_proj, d_middle, GptDropoutPlace::attention_branch);
    product_backward(call, work + at.narrow, kept + at.d_attn_proj, attn_proj_weight, C, C);
    attend_backward(call, at);
    product_backward(call, work + at.narrow, kept + at.d_qkv, c_attn_weight, 3 * C, C);
    norm_backward(call, at, at.norm_1, input_gradient, input, d_middle);
  }

  void backward_weight(const LayerCall& call, const std::byte* input) override {
    const Arrays at = arrays(call);
    const std::size_t C = channels_;
    std::byte *const saved = call.saved, *const kept = call.deferred, *const work = call.workspace;

    weight_gradient(call, mlp_proj_weight, saved + at.fc, kept + at.d_mlp_proj, 4 * C, C);
    norm_again(call, at, at.norm_2, saved + at.middle);
    weight_gradient(call, c_fc_weight, work + at.narrow, kept + at.d_fc, C, 4 * C);
    norm_gradient(call, at.norm_2, gradient(call, ln_2_weight), gradient(call, ln_2_bias));
    weight_gradient(call, attn_proj_weight, saved + at.attention, kept + at.d_attn_proj, C, C);
    norm_again(call, at, at.norm_1, input);
    weight_gradient(call, c_attn_weight, work + at.narrow, kept + at.d_qkv, C, 3 * C);
    norm_gradient(call, at.norm_1, gradient(call, ln_1_weight), gradient(call, ln_1_bias));
  }

 private:
  Arrays arrays(const LayerCall& call) const {
    expect_planned_threads(call, units_[0].name);
    return {options_, call.shape};
  }

  const std::byte* parameter(const LayerCall& call, Parameter which) const {
    return call.parameters[0] + offsets_[which] * size_of(dtype_);
  }
  std::byte* gradient(const LayerCall& call, Parameter which) const {
    return call.gradients[0] + offsets_[which] * size_of(options_.precision.gradient);
  }
  /// A bias comes right after its weight.
  static Parameter bias_of(Parameter weight) { return static_cast<Parameter>(weight + 1); }

  /// y[N, out] = x[N, in] · weight[in, out] + bias
  void product(const LayerCall& call, std::byte* y, const std::byte* x, Parameter weight, std::size_t out,
               std::size_t in) const {
    matmul(call.stream, {.m = rows(call), .n = out, .k = in}, product_arrays(call, y, x, weight));
  }

  MatmulArrays product_arrays(const LayerCall& call, std::byte* y, const std::byte* x, Parameter weight) const {
    return {.c = y,
            .c_dtype = dtype_,
            .a = x,
            .b = parameter(call, weight),
            .dtype = dtype_,
            .bias = parameter(call, bias_of(weight))};
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
    matmul_column_sums(call.stream, {.m = in, .n = out, .k = rows(call), .transpose_a = true},
                       {.c = gradient(call, weight),
                        .c_dtype = options_.precision.gradient,
                        .a = x,
                        .b = dy,
                        .dtype = dtype_,
                        .accumulate = call.accumulate},
                       {gradient(call, bias_of(weight)), options_.precision.gradient, call.accumulate});
  }

  std::array<UnitSpec, 1> units_;
  std::array<std::size_t, parameter_count> offsets_;
};

}  // namespace

std::unique_ptr<Layer> make_gpt_block(const GptOptions& options, int index, const Tuning& tuning) {
  return std::make_unique<GptBlock>(options, index, tuning);
}

}  // namespace ranvier::models

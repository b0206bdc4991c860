#include "models/gpt_block_layer.hpp"

#include "models/ops/layer_norm.hpp"
#include "models/ops/matmul.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>

namespace ranvier::models {
namespace {

AttentionShape attention_shape(const GptOptions& options, const MicrobatchShape& shape) {
  return {.samples = shape.samples,
          .positions = shape.positions,
          .heads = options.heads,
          .channels = options.hidden / options.heads,
          .kernels = options.attention,
          .fast_backward = options.fast_attention_backward};
}

}  // namespace

void keep_norm_parameters(runtime::StreamView stream, std::byte* to, const std::byte* weight, const std::byte* bias,
                          std::size_t bytes) {
  if (bias == weight + bytes) return runtime::copy(stream, to, weight, 2 * bytes);
  runtime::copy(stream, to, weight, bytes);
  runtime::copy(stream, to + bytes, bias, bytes);
}

void store_norm_gradient(const LayerCall& call, runtime::DType dtype, std::byte* weight, std::byte* bias,
                         const float* sums, std::size_t channels) {
  if (bias == weight + channels * size_of(dtype))
    return store_gradient(call.stream, weight, dtype, sums, 2 * channels, call.accumulate);
  store_gradient(call.stream, weight, dtype, sums, channels, call.accumulate);
  store_gradient(call.stream, bias, dtype, sums + channels, channels, call.accumulate);
}

GptBlockArrays::GptBlockArrays(const GptOptions& options, const MicrobatchShape& shape) {
  const auto N = static_cast<std::size_t>(shape.samples) * static_cast<std::size_t>(shape.positions);
  const auto C = static_cast<std::size_t>(options.hidden);
  const auto H = static_cast<std::size_t>(options.heads);
  const std::size_t element = size_of(options.precision.compute);

  for (Norm* norm : {&norm_1, &norm_2}) {
    norm->mean = saved.add(N, sizeof(float));
    norm->rstd = saved.add(N, sizeof(float));
    norm->sums = deferred.add(2 * C, sizeof(float));
    norm->parameters = deferred.add(2 * C, element);
  }
  logsumexp = saved.add(N * H, sizeof(float));
  qkv = saved.add(N * 3 * C, element);
  attention = saved.add(N * C, element);
  middle = saved.add(N * C, element);
  fc = saved.add(N * 4 * C, element);

  d_qkv = deferred.add(N * 3 * C, element);
  d_attn_proj = deferred.add(N * C, element);
  d_fc = deferred.add(N * 4 * C, element);
  d_mlp_proj = deferred.add(N * C, element);

  narrow = workspace.add(N * C, element);
  scratch = workspace.add(1, std::max(attention_workspace_bytes(attention_shape(options, shape),
                                                                options.precision.compute, shape.threads),
                                      layer_norm_workspace_bytes({N, C})));
}

GptBlockLayer::GptBlockLayer(const GptOptions& options, int index)
    : options_(options),
      dtype_(options.precision.compute),
      channels_(static_cast<std::size_t>(options.hidden)),
      index_(index) {}

void GptBlockLayer::norm_forward(const LayerCall& call, const GptBlockArrays& at, const Norm& norm,
                                 const std::byte* x, const std::byte* weight, const std::byte* bias,
                                 const std::byte* branch, std::byte* sum) const {
  layer_norm_forward(call.stream, {rows(call), channels_}, dtype_,
                     {.y = call.workspace + at.narrow,
                      .mean = floats(call.saved + norm.mean),
                      .rstd = floats(call.saved + norm.rstd),
                      .x = x,
                      .weight = weight,
                      .bias = bias,
                      .branch = branch,
                      .sum = sum});
}

void GptBlockLayer::keep_norm(const LayerCall& call, const Norm& norm, const std::byte* weight,
                              const std::byte* bias) const {
  keep_norm_parameters(call.stream, call.deferred + norm.parameters, weight, bias, channels_ * size_of(dtype_));
}

void GptBlockLayer::norm_backward(const LayerCall& call, const GptBlockArrays& at, const Norm& norm, std::byte* dx,
                                  const std::byte* x, const std::byte* residual) const {
  layer_norm_backward(call.stream, {rows(call), channels_}, dtype_,
                      {.dx = dx,
                       .sums = floats(call.deferred + norm.sums),
                       .dy = call.workspace + at.narrow,
                       .x = x,
                       .mean = floats(call.saved + norm.mean),
                       .rstd = floats(call.saved + norm.rstd),
                       .weight = call.deferred + norm.parameters,
                       .residual = residual,
                       .workspace = call.workspace + at.scratch});
}

void GptBlockLayer::norm_again(const LayerCall& call, const GptBlockArrays& at, const Norm& norm,
                               const std::byte* x) const {
  const std::byte* const weight = call.deferred + norm.parameters;
  layer_norm_again(call.stream, {rows(call), channels_}, dtype_, call.workspace + at.narrow,
                   floats(call.saved + norm.mean), floats(call.saved + norm.rstd), x, weight,
                   weight + channels_ * size_of(dtype_));
}

void GptBlockLayer::norm_gradient(const LayerCall& call, const Norm& norm, std::byte* weight_gradient,
                                  std::byte* bias_gradient) const {
  store_norm_gradient(call, options_.precision.gradient, weight_gradient, bias_gradient,
                      floats(call.deferred + norm.sums), channels_);
}

void GptBlockLayer::attend(const LayerCall& call, const GptBlockArrays& at) const {
  std::byte* const saved = call.saved;
  attention_forward(call.stream, attention_shape(options_, call.shape), dtype_, saved + at.attention,
                    floats(saved + at.logsumexp), saved + at.qkv, drop_rule(call, GptDropoutPlace::attention),
                    call.workspace + at.scratch, {.first_key = call.document_starts});
}

void GptBlockLayer::attend_backward(const LayerCall& call, const GptBlockArrays& at) const {
  std::byte* const saved = call.saved;
  attention_backward(call.stream, attention_shape(options_, call.shape), dtype_, call.deferred + at.d_qkv,
                     call.workspace + at.narrow, saved + at.qkv, saved + at.attention, floats(saved + at.logsumexp),
                     drop_rule(call, GptDropoutPlace::attention), call.workspace + at.scratch,
                     {.first_key = call.document_starts});
}

Dropout GptBlockLayer::drop_rule(const LayerCall& call, GptDropoutPlace place) const {
  return make_dropout(call.training ? options_.dropout : 0.0f, call.key.seed, call.key.step,
                      gpt_dropout_site(index_, place), call.key.first_sample);
}

void GptBlockLayer::drop(const LayerCall& call, std::byte* values, GptDropoutPlace place) const {
  dropout(call.stream, values, dtype_, call.shape.samples, output_elements(call.shape.positions),
          drop_rule(call, place));
}

void GptBlockLayer::branch_gradient(const LayerCall& call, std::byte* to, const std::byte* gradient,
                                    GptDropoutPlace place) const {
  runtime::copy(call.stream, to, gradient, rows(call) * channels_ * size_of(dtype_));
  drop(call, to, place);
}

}  // namespace ranvier::models

#include "models/modules/normed_convolution.hpp"

#include "models/ops/norm.hpp"
#include "runtime/base/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>

namespace ranvier::models {

NormedConvolution::NormedConvolution(UnitBuilder& builder, std::size_t unit, std::size_t statistics,
                                     const ConvolutionOptions& convolution, const std::string& name)
    : precision_(convolution.precision),
      convolution_(builder, unit, convolution),
      weight_(builder.add(unit, {name + ".weight", {channels()}, {Initializer::Kind::ones}})),
      bias_(builder.add(unit, {name + ".bias", {channels()}, {Initializer::Kind::zeros}})),
      mean_(builder.add(statistics, {name + ".running_mean", {channels()}, {Initializer::Kind::zeros}})),
      variance_(builder.add(statistics, {name + ".running_var", {channels()}, {Initializer::Kind::ones}})),
      fixed_(!builder.tuning().trains(name + ".running_mean")) {
  if (fixed_ == builder.tuning().trains(name + ".running_var"))
    fail(ErrorCode::usage,
         "`train` and `freeze` split {0}.running_mean and {0}.running_var: one is trained, one is frozen; make the "
         "patterns match both names or none",
         name);
}

NormedConvolution::Arrays NormedConvolution::plan(CallMemory& memory, std::size_t samples,
                                                  SavedActivations activations) const {
  const std::size_t N = convolution_.out_rows(samples), C = channels(), element = size_of(precision_.compute);
  Arrays at;
  at.rows = N;
  at.product = memory.saved.add(N * C, element);
  at.statistics = memory.saved.add(3 * C, sizeof(float));
  if (activations == SavedActivations::all) at.y = memory.saved.add(N * C, element);
  at.d_product = memory.deferred.add(N * C, element);
  at.sums = memory.deferred.add(2 * C, sizeof(float));
  at.kept = memory.deferred.add(2 * C, element);
  return at;
}

std::size_t NormedConvolution::scratch_bytes(std::size_t samples) const {
  return std::max({convolution_.scratch_bytes(samples),
                   batch_norm_workspace_bytes(shape(convolution_.out_rows(samples))),
                   2 * channels() * sizeof(float)});
}

void NormedConvolution::forward(const LayerCall& call, const Arrays& at, std::byte* y, const std::byte* x,
                                std::byte* scratch, const Follow& follow) const {
  const BatchNormShape shape = this->shape(at.rows);
  std::byte* const product = call.saved + at.product;
  convolution_.forward(call, product, x, scratch);
  const runtime::DType dtype = precision_.compute;
  float* const statistics = floats(call.saved + at.statistics);
  if (call.training && !fixed_) {
    batch_norm_statistics(call.stream, shape, dtype, statistics, product, scratch);
  } else {
    batch_norm_fixed_statistics(call.stream, shape, dtype, statistics, parameter(call, mean_, dtype),
                                parameter(call, variance_, dtype));
  }
  batch_norm_forward(call.stream, shape, dtype, y,
                     values(call, at, follow, parameter(call, weight_, dtype), parameter(call, bias_, dtype)));
}

void NormedConvolution::keep(const LayerCall& call, const Arrays& at) const {
  const runtime::DType dtype = precision_.compute;
  const std::size_t bytes = channels() * size_of(dtype);
  runtime::copy(call.stream, call.deferred + at.kept, parameter(call, weight_, dtype), bytes);
  runtime::copy(call.stream, call.deferred + at.kept + bytes, parameter(call, bias_, dtype), bytes);
}

BatchNormValues NormedConvolution::values(const LayerCall& call, const Arrays& at, const Follow& follow,
                                          const std::byte* weight, const std::byte* bias) {
  return {.x = call.saved + at.product,
          .statistics = floats(call.saved + at.statistics),
          .weight = weight,
          .bias = bias,
          .addend = follow.addend,
          .relu = follow.relu};
}

BatchNormValues NormedConvolution::kept_values(const LayerCall& call, const Arrays& at,
                                               const Follow& follow) const {
  const std::byte* const weight = call.deferred + at.kept;
  return values(call, at, follow, weight, weight + channels() * size_of(precision_.compute));
}

void NormedConvolution::again(const LayerCall& call, const Arrays& at, std::byte* y, const Follow& follow) const {
  if (at.y) return;
  batch_norm_forward(call.stream, shape(at.rows), precision_.compute, y, kept_values(call, at, follow));
}

void NormedConvolution::backward_norm(const LayerCall& call, const Arrays& at, std::byte* d_sum,
                                      const std::byte* dy, std::byte* scratch, const Follow& follow) const {
  batch_norm_backward(call.stream, shape(at.rows), precision_.compute,
                      {.dx = call.deferred + at.d_product,
                       .d_addend = d_sum,
                       .sums = floats(call.deferred + at.sums),
                       .dy = dy,
                       .fixed = fixed_,
                       .workspace = scratch},
                      kept_values(call, at, follow));
}

void NormedConvolution::backward_input(const LayerCall& call, const Arrays& at, std::byte* dx,
                                       std::byte* scratch) const {
  convolution_.backward_input(call, dx, call.deferred + at.d_product, scratch);
}

void NormedConvolution::backward_weight(const LayerCall& call, const Arrays& at, const std::byte* x,
                                        std::byte* scratch) const {
  convolution_.backward_weight(call, x, call.deferred + at.d_product, scratch);
  const runtime::DType dtype = precision_.gradient;
  const std::size_t C = channels();
  const auto store = [&](const ParameterRef& place, const float* sums) {
    if (is_trained(call, place))
      store_gradient(call.stream, gradient(call, place, dtype), dtype, sums, C, call.accumulate);
  };
  const float* const sums = floats(call.deferred + at.sums);
  store(weight_, sums);
  store(bias_, sums + C);
  if (fixed_) return;
  // The microbatch's share of the batch. The variance is scaled from N to N - 1, to estimate the population's.
  const double share = call.loss_factor * call.shape.samples;
  const auto N = static_cast<double>(at.rows);
  float* const mean = floats(scratch);
  runtime::copy(call.stream, mean, call.saved + at.statistics, 2 * C * sizeof(float));
  runtime::scale(call.stream, mean, runtime::DType::f32, static_cast<float>(share), C);
  runtime::scale(call.stream, mean + C, runtime::DType::f32,
                 static_cast<float>(at.rows > 1 ? share * N / (N - 1) : share), C);
  store(mean_, mean);
  store(variance_, mean + C);
}

}  // namespace ranvier::models

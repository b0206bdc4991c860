#include "models/modules/batch_norm.hpp"

#include "models/ops/norm.hpp"
#include "runtime/base/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>

namespace ranvier::models {

BatchNorm::BatchNorm(UnitBuilder& builder, std::size_t unit, std::size_t statistics, const std::string& name,
                     std::size_t channels, const Precision& precision)
    : channels_(channels),
      precision_(precision),
      weight_(builder.add(unit, {name + ".weight", {channels}, {Initializer::Kind::ones}})),
      bias_(builder.add(unit, {name + ".bias", {channels}, {Initializer::Kind::zeros}})),
      mean_(builder.add(statistics, {name + ".running_mean", {channels}, {Initializer::Kind::zeros}})),
      variance_(builder.add(statistics, {name + ".running_var", {channels}, {Initializer::Kind::ones}})),
      fixed_(!builder.tuning().trains(name + ".running_mean")) {
  if (fixed_ == builder.tuning().trains(name + ".running_var"))
    fail(ErrorCode::usage,
         "`train` and `freeze` split {0}.running_mean and {0}.running_var: one is trained, one is frozen; make the "
         "patterns match both names or none",
         name);
}

BatchNorm::Arrays BatchNorm::plan(MemoryLayout& saved, MemoryLayout& deferred, std::size_t rows,
                                  SavedActivations activations) const {
  Arrays at;
  at.statistics = saved.add(3 * channels_, sizeof(float));
  if (activations == SavedActivations::all) at.y = saved.add(rows * channels_, size_of(precision_.compute));
  at.sums = deferred.add(2 * channels_, sizeof(float));
  at.kept = deferred.add(2 * channels_, size_of(precision_.compute));
  return at;
}

std::size_t BatchNorm::scratch_bytes(std::size_t rows) const {
  return std::max(batch_norm_workspace_bytes(shape(rows)), 2 * channels_ * sizeof(float));
}

void BatchNorm::forward(const LayerCall& call, const Arrays& at, std::size_t rows, std::byte* y, const std::byte* x,
                        std::byte* scratch, const Follow& follow) const {
  const runtime::DType dtype = precision_.compute;
  float* const statistics = floats(call.saved + at.statistics);
  if (call.training && !fixed_) {
    batch_norm_statistics(call.stream, shape(rows), dtype, statistics, x, scratch);
  } else {
    batch_norm_fixed_statistics(call.stream, shape(rows), dtype, statistics, parameter(call, mean_, dtype),
                                parameter(call, variance_, dtype));
  }
  batch_norm_forward(call.stream, shape(rows), dtype, y,
                     {.x = x,
                      .statistics = statistics,
                      .weight = parameter(call, weight_, dtype),
                      .bias = parameter(call, bias_, dtype),
                      .addend = follow.addend,
                      .relu = follow.relu});
}

void BatchNorm::keep(const LayerCall& call, const Arrays& at) const {
  const runtime::DType dtype = precision_.compute;
  const std::size_t bytes = channels_ * size_of(dtype);
  runtime::copy(call.stream, call.deferred + at.kept, parameter(call, weight_, dtype), bytes);
  runtime::copy(call.stream, call.deferred + at.kept + bytes, parameter(call, bias_, dtype), bytes);
}

BatchNormValues BatchNorm::values(const LayerCall& call, const Arrays& at, const std::byte* x,
                                  const Follow& follow) const {
  return {.x = x,
          .statistics = floats(call.saved + at.statistics),
          .weight = call.deferred + at.kept,
          .bias = call.deferred + at.kept + channels_ * size_of(precision_.compute),
          .addend = follow.addend,
          .relu = follow.relu};
}

void BatchNorm::again(const LayerCall& call, const Arrays& at, std::size_t rows, std::byte* y, const std::byte* x,
                      const Follow& follow) const {
  if (at.y) return;
  batch_norm_forward(call.stream, shape(rows), precision_.compute, y, values(call, at, x, follow));
}

void BatchNorm::backward(const LayerCall& call, const Arrays& at, std::size_t rows, std::byte* dx, std::byte* d_sum,
                         const std::byte* dy, const std::byte* x, std::byte* scratch, const Follow& follow) const {
  batch_norm_backward(call.stream, shape(rows), precision_.compute,
                      {.dx = dx,
                       .d_addend = d_sum,
                       .sums = floats(call.deferred + at.sums),
                       .dy = dy,
                       .fixed = fixed_,
                       .workspace = scratch},
                      values(call, at, x, follow));
}

void BatchNorm::store_gradients(const LayerCall& call, const Arrays& at, std::size_t rows,
                                std::byte* scratch) const {
  const runtime::DType dtype = precision_.gradient;
  const auto store = [&](const ParameterRef& place, const float* sums) {
    if (is_trained(call, place))
      store_gradient(call.stream, gradient(call, place, dtype), dtype, sums, channels_, call.accumulate);
  };
  const float* const sums = floats(call.deferred + at.sums);
  store(weight_, sums);
  store(bias_, sums + channels_);
  if (fixed_) return;
  // The microbatch's share of the batch. The variance is scaled from N to N - 1, to estimate the population's.
  const double share = call.loss_factor * call.shape.samples;
  const auto N = static_cast<double>(rows);
  float* const mean = floats(scratch);
  runtime::copy(call.stream, mean, call.saved + at.statistics, 2 * channels_ * sizeof(float));
  runtime::scale(call.stream, mean, runtime::DType::f32, static_cast<float>(share), channels_);
  runtime::scale(call.stream, mean + channels_, runtime::DType::f32,
                 static_cast<float>(rows > 1 ? share * N / (N - 1) : share), channels_);
  store(mean_, mean);
  store(variance_, mean + channels_);
}

}  // namespace ranvier::models

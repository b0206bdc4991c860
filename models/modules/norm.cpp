#include "models/modules/norm.hpp"

#include "models/ops/layer_norm.hpp"
#include "models/ops/rms_norm.hpp"
#include "runtime/base/error.hpp"
#include "runtime/kernels/elementwise.hpp"

namespace ranvier::models {
namespace {

LayerNormShape layer_shape(const NormOptions& options, std::size_t rows) {
  return {rows, options.channels, options.epsilon};
}

RmsNormShape rms_shape(const NormOptions& options, std::size_t rows) {
  return {rows, options.channels, options.epsilon, options.groups, options.x_stride, options.y_stride};
}

}  // namespace

Norm::Norm(UnitBuilder& builder, std::size_t unit, const std::string& name, const NormOptions& options)
    : options_(options), dtype_(options.precision.compute) {
  weight_ = builder.add(unit, {name + ".weight", {options.channels}, {Initializer::Kind::ones}});
  if (!is_layer()) return;
  bias_ = builder.add(unit, {name + ".bias", {options.channels}, {Initializer::Kind::zeros}});
  adjacent_ = bias_.unit == weight_.unit && bias_.offset == weight_.offset + options.channels;
}

Norm::Arrays Norm::plan(MemoryLayout& saved, MemoryLayout& deferred, std::size_t rows,
                        SavedActivations activations) const {
  Arrays at;
  if (is_layer()) at.mean = saved.add(rows, sizeof(float));
  at.rstd = saved.add(rows * options_.groups, sizeof(float));
  if (activations == SavedActivations::all)
    at.y = saved.add(rows * options_.groups * options_.channels, size_of(dtype_));
  at.sums = deferred.add(parameters(), sizeof(float));
  at.kept = deferred.add(parameters(), size_of(dtype_));
  return at;
}

std::size_t Norm::scratch_bytes(std::size_t rows) const {
  return is_layer() ? layer_norm_workspace_bytes(layer_shape(options_, rows))
                    : rms_norm_workspace_bytes(rms_shape(options_, rows));
}

std::size_t Norm::parameters() const { return (is_layer() ? 2 : 1) * options_.channels; }

void Norm::forward(const LayerCall& call, const Arrays& at, std::byte* y, const std::byte* x,
                   const std::byte* branch, std::byte* sum) const {
  if (is_layer()) {
    layer_norm_forward(call.stream, layer_shape(options_, rows(call)), dtype_,
                       {.y = y,
                        .mean = floats(call.saved + at.mean),
                        .rstd = floats(call.saved + at.rstd),
                        .x = x,
                        .weight = parameter(call, weight_, dtype_),
                        .bias = parameter(call, bias_, dtype_),
                        .branch = branch,
                        .sum = sum});
  } else {
    rms_norm_forward(call.stream, rms_shape(options_, rows(call)), dtype_,
                     {.y = y,
                      .rstd = floats(call.saved + at.rstd),
                      .x = x,
                      .weight = parameter(call, weight_, dtype_),
                      .branch = branch,
                      .sum = sum});
  }
}

void Norm::in_place(const LayerCall& call, const Arrays& at, std::byte* rows_in_place) const {
  expect(!is_layer(), "a LayerNorm in place");
  RmsNormShape shape = rms_shape(options_, rows(call));
  shape.x_stride = shape.y_stride;
  rms_norm_forward(call.stream, shape, dtype_,
                   {.y = rows_in_place,
                    .rstd = floats(call.saved + at.rstd),
                    .x = rows_in_place,
                    .weight = parameter(call, weight_, dtype_)});
}

void Norm::keep(const LayerCall& call, const Arrays& at) const {
  const std::size_t bytes = options_.channels * size_of(dtype_);
  const std::byte* const weight = parameter(call, weight_, dtype_);
  if (!is_layer() || adjacent_)  // one copy: fewer kernel launches on a GPU
    return runtime::copy(call.stream, call.deferred + at.kept, weight, is_layer() ? 2 * bytes : bytes);
  runtime::copy(call.stream, call.deferred + at.kept, weight, bytes);
  runtime::copy(call.stream, call.deferred + at.kept + bytes, parameter(call, bias_, dtype_), bytes);
}

void Norm::backward(const LayerCall& call, const Arrays& at, std::byte* dx, const std::byte* dy, const std::byte* x,
                    const std::byte* residual, std::byte* scratch) const {
  if (is_layer()) {
    layer_norm_backward(call.stream, layer_shape(options_, rows(call)), dtype_,
                        {.dx = dx,
                         .sums = floats(call.deferred + at.sums),
                         .dy = dy,
                         .x = x,
                         .mean = floats(call.saved + at.mean),
                         .rstd = floats(call.saved + at.rstd),
                         .weight = call.deferred + at.kept,
                         .residual = residual,
                         .workspace = scratch});
  } else {
    rms_norm_backward(call.stream, rms_shape(options_, rows(call)), dtype_,
                      {.dx = dx,
                       .weight_sums = floats(call.deferred + at.sums),
                       .dy = dy,
                       .x = x,
                       .rstd = floats(call.saved + at.rstd),
                       .weight = call.deferred + at.kept,
                       .residual = residual,
                       .workspace = scratch});
  }
}

void Norm::again(const LayerCall& call, const Arrays& at, std::byte* y, const std::byte* x) const {
  if (at.y) return;
  const std::byte* const weight = call.deferred + at.kept;
  const float* const rstd = floats(call.saved + at.rstd);
  if (is_layer()) {
    layer_norm_again(call.stream, layer_shape(options_, rows(call)), dtype_, y, floats(call.saved + at.mean), rstd,
                     x, weight, weight + options_.channels * size_of(dtype_));
  } else {
    rms_norm_again(call.stream, rms_shape(options_, rows(call)), dtype_, y, rstd, x, weight);
  }
}

void Norm::store_gradients(const LayerCall& call, const Arrays& at) const {
  const runtime::DType dtype = options_.precision.gradient;
  const float* const sums = floats(call.deferred + at.sums);
  const bool one = !is_layer() || adjacent_;
  if (is_trained(call, weight_))
    store_gradient(call.stream, gradient(call, weight_, dtype), dtype, sums, one ? parameters() : options_.channels,
                   call.accumulate);
  if (!one && is_trained(call, bias_))
    store_gradient(call.stream, gradient(call, bias_, dtype), dtype, sums + options_.channels, options_.channels,
                   call.accumulate);
}

}  // namespace ranvier::models

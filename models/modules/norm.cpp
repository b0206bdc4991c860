#include "models/modules/norm.hpp"

#include "runtime/base/error.hpp"
#include "runtime/kernels/elementwise.hpp"

namespace ranvier::models {

Norm::Norm(UnitBuilder& builder, std::size_t unit, const std::string& name, const NormShape& shape)
    : shape_(shape), dtype_(builder.precision().compute), gradient_dtype_(builder.precision().gradient) {
  weight_ = builder.add(unit, {name + ".weight", {shape.channels}, {Initializer::Kind::ones}});
  if (!is_layer()) return;
  bias_ = builder.add(unit, {name + ".bias", {shape.channels}, {Initializer::Kind::zeros}});
  adjacent_ = bias_.unit == weight_.unit && bias_.offset == weight_.offset + shape.channels;
}

Norm::Arrays Norm::plan(CallMemory& memory, std::size_t rows, SavedActivations activations) const {
  Arrays at;
  if (is_layer()) at.mean = memory.saved.add(rows, sizeof(float));
  at.rstd = memory.saved.add(rows * shape_.groups, sizeof(float));
  if (activations == SavedActivations::all)
    at.y = memory.saved.add(rows * shape_.groups * shape_.channels, size_of(dtype_));
  at.sums = memory.deferred.add(parameters(), sizeof(float));
  at.kept = memory.deferred.add(parameters(), size_of(dtype_));
  return at;
}

std::size_t Norm::scratch_bytes(std::size_t rows) const { return norm_workspace_bytes(shape(rows)); }

std::size_t Norm::parameters() const { return shape(0).parameters(); }

void Norm::forward(const LayerCall& call, const Arrays& at, std::byte* y, const std::byte* x,
                   const std::byte* branch, std::byte* sum) const {
  norm_forward(call.stream, shape(rows(call)), dtype_,
               {.y = y,
                .mean = floats(call.saved + at.mean),
                .rstd = floats(call.saved + at.rstd),
                .x = x,
                .weight = parameter(call, weight_, dtype_),
                .bias = is_layer() ? parameter(call, bias_, dtype_) : nullptr,
                .branch = branch,
                .sum = sum});
}

void Norm::in_place(const LayerCall& call, const Arrays& at, std::byte* rows_in_place) const {
  expect(!is_layer(), "a LayerNorm in place");
  NormShape in_place = shape(rows(call));
  in_place.x_stride = in_place.y_stride;
  norm_forward(call.stream, in_place, dtype_,
               {.y = rows_in_place,
                .rstd = floats(call.saved + at.rstd),
                .x = rows_in_place,
                .weight = parameter(call, weight_, dtype_)});
}

void Norm::keep(const LayerCall& call, const Arrays& at) const {
  const std::size_t bytes = shape_.channels * size_of(dtype_);
  const std::byte* const weight = parameter(call, weight_, dtype_);
  if (!is_layer() || adjacent_)  // one copy: fewer kernel launches on a GPU
    return runtime::copy(call.stream, call.deferred + at.kept, weight, is_layer() ? 2 * bytes : bytes);
  runtime::copy(call.stream, call.deferred + at.kept, weight, bytes);
  runtime::copy(call.stream, call.deferred + at.kept + bytes, parameter(call, bias_, dtype_), bytes);
}

void Norm::backward(const LayerCall& call, const Arrays& at, std::byte* dx, const std::byte* dy, const std::byte* x,
                    const std::byte* residual, std::byte* scratch) const {
  norm_backward(call.stream, shape(rows(call)), dtype_,
                {.dx = dx,
                 .sums = floats(call.deferred + at.sums),
                 .dy = dy,
                 .x = x,
                 .mean = floats(call.saved + at.mean),
                 .rstd = floats(call.saved + at.rstd),
                 .weight = call.deferred + at.kept,
                 .residual = residual,
                 .workspace = scratch});
}

void Norm::again(const LayerCall& call, const Arrays& at, std::byte* y, const std::byte* x) const {
  if (at.y) return;
  const std::byte* const weight = call.deferred + at.kept;
  norm_forward(call.stream, shape(rows(call)), dtype_,
               {.y = y,
                .mean = floats(call.saved + at.mean),
                .rstd = floats(call.saved + at.rstd),
                .x = x,
                .weight = weight,
                .bias = is_layer() ? weight + shape_.channels * size_of(dtype_) : nullptr,
                .again = true});
}

void Norm::store_gradients(const LayerCall& call, const Arrays& at) const {
  const float* const sums = floats(call.deferred + at.sums);
  const bool one = !is_layer() || adjacent_;
  store_gradient(call, weight_, gradient_dtype_, sums, one ? parameters() : shape_.channels);
  if (!one) store_gradient(call, bias_, gradient_dtype_, sums + shape_.channels, shape_.channels);
}

}  // namespace ranvier::models

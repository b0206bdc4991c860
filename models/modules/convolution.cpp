#include "models/modules/convolution.hpp"

#include "models/ops/matmul.hpp"
#include "models/ops/norm.hpp"
#include "runtime/base/arithmetic.hpp"

#include <algorithm>
#include <cmath>

namespace ranvier::models {
namespace {

using runtime::DType;

/// Limit for the patches of several samples.
constexpr std::size_t patches_bytes = std::size_t{32} << 20;

}  // namespace

Convolution::Convolution(UnitBuilder& builder, std::size_t unit, const ConvolutionOptions& options)
    : options_(options) {
  const std::size_t taps = options.kernel * options.kernel;
  const float deviation = std::sqrt(2.0f / static_cast<float>(options.out * taps));
  weight_ = builder.add(unit, {.name = options.name + ".weight",
                               .shape = {options.out, options.in, options.kernel, options.kernel},
                               .initializer = {Initializer::Kind::normal, deviation},
                               .decays = true});
}

PatchShape Convolution::patches(std::size_t samples) const {
  return {.samples = samples,
          .height = options_.size,
          .width = options_.size,
          .channels = options_.in,
          .kernel = options_.kernel,
          .stride = options_.stride,
          .padding = options_.kernel / 2};
}

double Convolution::flops_per_sample() const {
  const PatchShape one = patches(1);
  return 6.0 * static_cast<double>(one.columns() * options_.out) * static_cast<double>(one.rows());
}

std::size_t Convolution::samples_at_once(std::size_t samples) const {
  if (is_direct()) return samples;
  const std::size_t bytes = patches(1).rows() * patches(1).columns() * sizeof(float);
  return std::clamp<std::size_t>(patches_bytes / bytes, 1, samples);
}

std::size_t Convolution::bytes_at_once(std::size_t samples) const {
  constexpr std::size_t alignment = 64;
  const PatchShape some = patches(samples_at_once(samples));
  return runtime::round_up(some.rows() * some.columns() * sizeof(float), alignment);
}

std::size_t Convolution::scratch_bytes(std::size_t samples) const {
  if (is_direct()) return 0;
  const bool sums = options_.precision.gradient != DType::f32;
  return bytes_at_once(samples) + (sums ? options_.out * patches(1).columns() * sizeof(float) : 0);
}

template <typename F>
void Convolution::for_some(std::size_t samples, const F& f) const {
  const std::size_t at_once = samples_at_once(samples);
  for (std::size_t first = 0; first < samples; first += at_once)
    f(first, patches(std::min(at_once, samples - first)));
}

void Convolution::forward(const LayerCall& call, std::byte* y, const std::byte* x, std::byte* scratch) const {
  const DType dtype = options_.precision.compute;
  for_some(static_cast<std::size_t>(call.shape.samples), [&](std::size_t first, const PatchShape& some) {
    const std::byte* rows = x + in_rows(first) * options_.in * size_of(dtype);
    if (!is_direct()) {
      gather_patches(call.stream, some, dtype, scratch, rows);
      rows = scratch;
    }
    matmul(call.stream, {.m = some.rows(), .n = options_.out, .k = some.columns(), .transpose_b = true},
           {.c = y + out_rows(first) * options_.out * size_of(dtype),
            .c_dtype = dtype,
            .a = rows,
            .b = parameter(call, weight_, dtype),
            .dtype = dtype});
  });
}

void Convolution::backward_input(const LayerCall& call, std::byte* dx, const std::byte* dy,
                                 std::byte* scratch) const {
  const DType dtype = options_.precision.compute;
  for_some(static_cast<std::size_t>(call.shape.samples), [&](std::size_t first, const PatchShape& some) {
    std::byte* const to = dx + in_rows(first) * options_.in * size_of(dtype);
    matmul(call.stream, {.m = some.rows(), .n = some.columns(), .k = options_.out},
           {.c = is_direct() ? to : scratch,
            .c_dtype = is_direct() ? dtype : DType::f32,
            .a = dy + out_rows(first) * options_.out * size_of(dtype),
            .b = parameter(call, weight_, dtype),
            .dtype = dtype});
    if (!is_direct()) add_patches(call.stream, some, dtype, to, floats(scratch));
  });
}

void Convolution::backward_weight(const LayerCall& call, const std::byte* x, const std::byte* dy,
                                  std::byte* scratch) const {
  if (!is_trained(call, weight_)) return;
  const Precision& precision = options_.precision;
  const auto samples = static_cast<std::size_t>(call.shape.samples);
  std::byte* const to = gradient(call, weight_, precision.gradient);
  // In half precision, sums over several multiplications would be rounded after each one.
  const bool apart = precision.gradient != DType::f32 && samples_at_once(samples) < samples;
  const std::size_t columns = patches(1).columns();
  std::byte* const sums = apart ? scratch + bytes_at_once(samples) : to;
  for_some(samples, [&](std::size_t first, const PatchShape& some) {
    const std::byte* rows = x + in_rows(first) * options_.in * size_of(precision.compute);
    if (!is_direct()) {
      gather_patches(call.stream, some, precision.compute, scratch, rows);
      rows = scratch;
    }
    matmul(call.stream, {.m = options_.out, .n = columns, .k = some.rows(), .transpose_a = true},
           {.c = sums,
            .c_dtype = apart ? DType::f32 : precision.gradient,
            .a = dy + out_rows(first) * options_.out * size_of(precision.compute),
            .b = rows,
            .dtype = precision.compute,
            .accumulate = first > 0 || (!apart && call.accumulate)});
  });
  if (apart)
    store_gradient(call.stream, to, precision.gradient, floats(sums), options_.out * columns, call.accumulate);
}

}  // namespace ranvier::models

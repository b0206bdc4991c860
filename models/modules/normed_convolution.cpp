#include "models/modules/normed_convolution.hpp"

#include "models/ops/matmul.hpp"
#include "models/ops/norm.hpp"
#include "runtime/base/arithmetic.hpp"
#include "runtime/base/error.hpp"
#include "runtime/kernels/elementwise.hpp"

#include <algorithm>
#include <cmath>

namespace ranvier::models {
namespace {

using runtime::DType;

/// Limit for the patches of several samples.
constexpr std::size_t patches_bytes = std::size_t{32} << 20;

ParameterSpec kernels_of(const ConvolutionOptions& options) {
  const float deviation = std::sqrt(2.0f / static_cast<float>(options.out * options.kernel * options.kernel));
  return {.name = options.name + ".weight",
          .shape = {options.out, options.in, options.kernel, options.kernel},
          .initializer = {Initializer::Kind::normal, deviation},
          .decays = true,
          .matrices = {{.rows = options.out, .columns = options.in * options.kernel * options.kernel}}};
}

}  // namespace

NormedConvolution::NormedConvolution(UnitBuilder& builder, std::size_t unit, std::size_t statistics,
                                     const ConvolutionOptions& options)
    : options_(options),
      kernels_(builder.add(unit, kernels_of(options))),
      weight_(builder.add(unit, {options.norm + ".weight", {options.out}, {Initializer::Kind::ones}})),
      bias_(builder.add(unit, {options.norm + ".bias", {options.out}, {Initializer::Kind::zeros}})),
      mean_(builder.add(statistics, {options.norm + ".running_mean", {options.out}, {Initializer::Kind::zeros}})),
      variance_(builder.add(statistics, {options.norm + ".running_var", {options.out}, {Initializer::Kind::ones}})),
      dtype_(builder.precision().compute),
      gradient_dtype_(builder.precision().gradient),
      fixed_(!builder.tuning().trains(options.norm + ".running_mean")) {
  if (fixed_ == builder.tuning().trains(options.norm + ".running_var"))
    fail(ErrorCode::usage,
         "`train` and `freeze` split {0}.running_mean and {0}.running_var: one is trained, one is frozen; make the "
         "patterns match both names or none",
         options.norm);
}

PatchShape NormedConvolution::patches(std::size_t samples) const {
  return {.samples = samples,
          .height = options_.size,
          .width = options_.size,
          .channels = options_.in,
          .kernel = options_.kernel,
          .stride = options_.stride,
          .padding = options_.kernel / 2};
}

double NormedConvolution::flops_per_sample() const {
  const PatchShape one = patches(1);
  return 6.0 * static_cast<double>(one.columns() * options_.out) * static_cast<double>(one.rows());
}

std::size_t NormedConvolution::samples_at_once(std::size_t samples) const {
  if (is_direct()) return samples;
  const std::size_t bytes = patches(1).rows() * patches(1).columns() * sizeof(float);
  return std::clamp<std::size_t>(patches_bytes / bytes, 1, samples);
}

std::size_t NormedConvolution::bytes_at_once(std::size_t samples) const {
  constexpr std::size_t alignment = 64;
  const PatchShape some = patches(samples_at_once(samples));
  return runtime::round_up(some.rows() * some.columns() * sizeof(float), alignment);
}

NormedConvolution::Arrays NormedConvolution::plan(CallMemory& memory, std::size_t samples,
                                                  SavedActivations activations) const {
  const std::size_t N = out_rows(samples), C = options_.out, element = size_of(dtype_);
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
  const bool sums = gradient_dtype_ != DType::f32;
  const std::size_t of_convolution =
      is_direct() ? 0 : bytes_at_once(samples) + (sums ? options_.out * patches(1).columns() * sizeof(float) : 0);
  return std::max(
      {of_convolution, batch_norm_workspace_bytes(shape(out_rows(samples))), 2 * options_.out * sizeof(float)});
}

template <typename F>
void NormedConvolution::for_some(std::size_t samples, const F& f) const {
  const std::size_t at_once = samples_at_once(samples);
  for (std::size_t first = 0; first < samples; first += at_once)
    f(first, patches(std::min(at_once, samples - first)));
}

const std::byte* NormedConvolution::rows_of(const LayerCall& call, const std::byte* x, std::size_t first,
                                            const PatchShape& some, std::byte* scratch) const {
  const std::byte* const pixels = x + in_rows(first) * options_.in * size_of(dtype_);
  if (is_direct()) return pixels;
  gather_patches(call.stream, some, dtype_, scratch, pixels);
  return scratch;
}

void NormedConvolution::forward(const LayerCall& call, const Arrays& at, std::byte* y, const std::byte* x,
                                std::byte* scratch, const Follow& follow) const {
  std::byte* const product = call.saved + at.product;
  for_some(static_cast<std::size_t>(call.shape.samples), [&](std::size_t first, const PatchShape& some) {
    const std::byte* const rows = rows_of(call, x, first, some, scratch);
    matmul(call.stream, {.m = some.rows(), .n = options_.out, .k = some.columns(), .transpose_b = true},
           {.c = product + out_rows(first) * options_.out * size_of(dtype_),
            .c_dtype = dtype_,
            .a = rows,
            .b = parameter(call, kernels_, dtype_),
            .dtype = dtype_});
  });
  const BatchNormShape shape = this->shape(at.rows);
  float* const statistics = floats(call.saved + at.statistics);
  if (call.training && !fixed_) {
    batch_norm_statistics(call.stream, shape, dtype_, statistics, product, scratch);
  } else {
    batch_norm_fixed_statistics(call.stream, shape, dtype_, statistics, parameter(call, mean_, dtype_),
                                parameter(call, variance_, dtype_));
  }
  batch_norm_forward(call.stream, shape, dtype_, y,
                     values(call, at, follow, parameter(call, weight_, dtype_), parameter(call, bias_, dtype_)));
}

void NormedConvolution::keep(const LayerCall& call, const Arrays& at) const {
  const std::size_t bytes = options_.out * size_of(dtype_);
  runtime::copy(call.stream, call.deferred + at.kept, parameter(call, weight_, dtype_), bytes);
  runtime::copy(call.stream, call.deferred + at.kept + bytes, parameter(call, bias_, dtype_), bytes);
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
  return values(call, at, follow, weight, weight + options_.out * size_of(dtype_));
}

void NormedConvolution::again(const LayerCall& call, const Arrays& at, std::byte* y, const Follow& follow) const {
  if (at.y) return;
  batch_norm_forward(call.stream, shape(at.rows), dtype_, y, kept_values(call, at, follow));
}

void NormedConvolution::backward_norm(const LayerCall& call, const Arrays& at, std::byte* d_sum,
                                      const std::byte* dy, std::byte* scratch, const Follow& follow) const {
  batch_norm_backward(call.stream, shape(at.rows), dtype_,
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
  for_some(static_cast<std::size_t>(call.shape.samples), [&](std::size_t first, const PatchShape& some) {
    std::byte* const to = dx + in_rows(first) * options_.in * size_of(dtype_);
    matmul(call.stream, {.m = some.rows(), .n = some.columns(), .k = options_.out},
           {.c = is_direct() ? to : scratch,
            .c_dtype = is_direct() ? dtype_ : DType::f32,
            .a = call.deferred + at.d_product + out_rows(first) * options_.out * size_of(dtype_),
            .b = parameter(call, kernels_, dtype_),
            .dtype = dtype_});
    if (!is_direct()) add_patches(call.stream, some, dtype_, to, floats(scratch));
  });
}

void NormedConvolution::backward_kernels(const LayerCall& call, const std::byte* x, const std::byte* dy,
                                         std::byte* scratch) const {
  if (!is_trained(call, kernels_)) return;
  const auto samples = static_cast<std::size_t>(call.shape.samples);
  std::byte* const to = gradient(call, kernels_, gradient_dtype_);
  // In half precision, sums over several multiplications would be rounded after each one.
  const bool apart = gradient_dtype_ != DType::f32 && samples_at_once(samples) < samples;
  const std::size_t columns = patches(1).columns();
  std::byte* const sums = apart ? scratch + bytes_at_once(samples) : to;
  for_some(samples, [&](std::size_t first, const PatchShape& some) {
    const std::byte* const rows = rows_of(call, x, first, some, scratch);
    matmul(call.stream, {.m = options_.out, .n = columns, .k = some.rows(), .transpose_a = true},
           {.c = sums,
            .c_dtype = apart ? DType::f32 : gradient_dtype_,
            .a = dy + out_rows(first) * options_.out * size_of(dtype_),
            .b = rows,
            .dtype = dtype_,
            .accumulate = first > 0 || (!apart && call.accumulate)});
  });
  if (apart)
    store_gradient(call.stream, to, gradient_dtype_, floats(sums), options_.out * columns, call.accumulate);
}

void NormedConvolution::backward_weight(const LayerCall& call, const Arrays& at, const std::byte* x,
                                        std::byte* scratch) const {
  backward_kernels(call, x, call.deferred + at.d_product, scratch);
  const std::size_t C = options_.out;
  const float* const sums = floats(call.deferred + at.sums);
  store_gradient(call, weight_, gradient_dtype_, sums, C);
  store_gradient(call, bias_, gradient_dtype_, sums + C, C);
  if (fixed_) return;
  // The microbatch's share of the batch. The variance is scaled from N to N - 1, to estimate the population's.
  const double share = call.loss_factor * call.shape.samples;
  const auto N = static_cast<double>(at.rows);
  float* const mean = floats(scratch);
  runtime::copy(call.stream, mean, call.saved + at.statistics, 2 * C * sizeof(float));
  runtime::scale(call.stream, mean, DType::f32, static_cast<float>(share), C);
  runtime::scale(call.stream, mean + C, DType::f32, static_cast<float>(at.rows > 1 ? share * N / (N - 1) : share),
                 C);
  store_gradient(call, mean_, gradient_dtype_, mean, C);
  store_gradient(call, variance_, gradient_dtype_, mean + C, C);
}

}  // namespace ranvier::models

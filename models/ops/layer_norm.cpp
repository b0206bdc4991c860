#include "models/ops/layer_norm.hpp"

#include "models/ops/dispatch.hpp"
#include "runtime/device/cuda_build.hpp"

#include <algorithm>

namespace ranvier::models {
namespace {

/// Cost of reading or writing `arrays` arrays [N, C], mean and rstd per row, and some arrays [C] of the run's dtype.
runtime::WorkCost cost_of(const LayerNormShape& shape, runtime::DType dtype, std::size_t arrays,
                          std::size_t parameters, std::size_t more = 0) {
  return memory_cost(
      runtime::WorkKind::norm, dtype,
      bytes_of((arrays * shape.rows + parameters) * shape.channels, dtype) + 2 * shape.rows * sizeof(float) + more);
}

}  // namespace

void layer_norm_forward(runtime::StreamView stream, const LayerNormShape& shape, runtime::DType dtype,
                        const LayerNormForward& arrays) {
  expect_kernel(dtype, "layer norm");
  on_device<layer_norm_forward_cpu, layer_norm_forward_cuda>(
      stream, cost_of(shape, dtype, arrays.branch == nullptr ? 2 : 4, 2), shape, dtype, arrays);
}

void layer_norm_again(runtime::StreamView stream, const LayerNormShape& shape, runtime::DType dtype, void* y,
                      const float* mean, const float* rstd, const void* x, const void* weight, const void* bias) {
  expect_kernel(dtype, "layer norm");
  on_device<layer_norm_again_cpu, layer_norm_again_cuda>(stream, cost_of(shape, dtype, 2, 2), shape, dtype, y, mean,
                                                         rstd, x, weight, bias);
}

std::size_t layer_norm_workspace_bytes(const LayerNormShape& shape) {
  if constexpr (runtime::with_cuda) {
    return std::max(layer_norm_cpu_workspace_bytes(shape), layer_norm_cuda_workspace_bytes(shape));
  }
  return layer_norm_cpu_workspace_bytes(shape);
}

void layer_norm_backward(runtime::StreamView stream, const LayerNormShape& shape, runtime::DType dtype,
                         const LayerNormBackward& arrays) {
  expect_kernel(dtype, "layer norm");
  on_device<layer_norm_backward_cpu, layer_norm_backward_cuda>(
      stream, cost_of(shape, dtype, arrays.residual == nullptr ? 3 : 4, 1, 2 * shape.channels * sizeof(float)),
      shape, dtype, arrays);
}

void store_gradient(runtime::StreamView stream, void* gradient, runtime::DType dtype, const float* sums,
                    std::size_t n, bool accumulate) {
  expect_kernel(dtype, "store_gradient");
  const std::size_t bytes = n * sizeof(float) + bytes_of(n, dtype) * (accumulate ? 2 : 1);
  on_device<store_gradient_cpu, store_gradient_cuda>(stream, runtime::elementwise_cost(bytes, dtype), gradient,
                                                     dtype, sums, n, accumulate);
}

}  // namespace ranvier::models

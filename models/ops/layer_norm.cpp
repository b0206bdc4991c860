#include "models/ops/layer_norm.hpp"

#include "models/ops/expect_kernel.hpp"
#include "models/ops/layer_norm_cpu.hpp"

namespace ranvier::models {

void layer_norm_forward(runtime::StreamView stream, const LayerNormShape& shape, runtime::DType dtype,
                        const LayerNormForward& arrays) {
  expect_kernel(stream, dtype, "layer norm");
  stream.launch([=](runtime::ComputePool& pool) { layer_norm_forward_cpu(pool, shape, dtype, arrays); });
}

void layer_norm_again(runtime::StreamView stream, const LayerNormShape& shape, runtime::DType dtype, void* y,
                      const float* mean, const float* rstd, const void* x, const void* weight, const void* bias) {
  expect_kernel(stream, dtype, "layer norm");
  stream.launch([=](runtime::ComputePool& pool) {
    layer_norm_again_cpu(pool, shape, dtype, y, mean, rstd, x, weight, bias);
  });
}

std::size_t layer_norm_workspace_bytes(const LayerNormShape& shape) {
  return layer_norm_cpu_workspace_bytes(shape);
}

void layer_norm_backward(runtime::StreamView stream, const LayerNormShape& shape, runtime::DType dtype,
                         const LayerNormBackward& arrays) {
  expect_kernel(stream, dtype, "layer norm");
  stream.launch([=](runtime::ComputePool& pool) { layer_norm_backward_cpu(pool, shape, dtype, arrays); });
}

void store_gradient(runtime::StreamView stream, void* gradient, runtime::DType dtype, const float* sums,
                    std::size_t n, bool accumulate) {
  expect_kernel(stream, dtype, "store_gradient");
  stream.launch([=](runtime::ComputePool&) { store_gradient_cpu(gradient, dtype, sums, n, accumulate); });
}

}  // namespace ranvier::models

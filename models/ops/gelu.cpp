#include "models/ops/gelu.hpp"

#include "models/ops/expect_kernel.hpp"
#include "models/ops/gelu_cpu.hpp"
#include "models/ops/gelu_cuda.hpp"
#include "runtime/cuda_build.hpp"

namespace ranvier::models {

void gelu_forward(runtime::StreamView stream, runtime::DType dtype, void* y, const void* x, std::size_t n) {
  expect_kernel(dtype, "gelu");
  if constexpr (runtime::with_cuda) {
    if (on_gpu(stream)) return gelu_forward_cuda(stream, dtype, y, x, n);
  }
  stream.launch([=](runtime::ComputePool& pool) { gelu_forward_cpu(pool, dtype, y, x, n); });
}

void gelu_backward(runtime::StreamView stream, runtime::DType dtype, void* d, void* x, std::size_t n) {
  expect_kernel(dtype, "gelu");
  if constexpr (runtime::with_cuda) {
    if (on_gpu(stream)) return gelu_backward_cuda(stream, dtype, d, x, n);
  }
  stream.launch([=](runtime::ComputePool& pool) { gelu_backward_cpu(pool, dtype, d, x, n); });
}

}  // namespace ranvier::models

#include "models/ops/gelu.hpp"

#include "models/ops/expect_kernel.hpp"
#include "models/ops/gelu_cpu.hpp"

namespace ranvier::models {

void gelu_forward(runtime::StreamView stream, runtime::DType dtype, void* y, const void* x, std::size_t n) {
  expect_kernel(stream, dtype, "gelu");
  stream.launch([=](runtime::ComputePool& pool) { gelu_forward_cpu(pool, dtype, y, x, n); });
}

void gelu_backward(runtime::StreamView stream, runtime::DType dtype, void* d, void* x, std::size_t n) {
  expect_kernel(stream, dtype, "gelu");
  stream.launch([=](runtime::ComputePool& pool) { gelu_backward_cpu(pool, dtype, d, x, n); });
}

}  // namespace ranvier::models

#include "models/ops/tanh.hpp"

#include "models/ops/dispatch.hpp"

namespace ranvier::models {

void tanh_forward(runtime::StreamView stream, runtime::DType dtype, void* y, const void* x, std::size_t n) {
  expect_kernel(dtype, "tanh");
  on_device<tanh_forward_cpu, tanh_forward_cuda>(
      stream, memory_cost(runtime::WorkKind::activation, dtype, bytes_of(2 * n, dtype)), dtype, y, x, n);
}

void tanh_backward(runtime::StreamView stream, runtime::DType dtype, void* d, const void* y, std::size_t n) {
  expect_kernel(dtype, "tanh");
  on_device<tanh_backward_cpu, tanh_backward_cuda>(
      stream, memory_cost(runtime::WorkKind::activation, dtype, bytes_of(3 * n, dtype)), dtype, d, y, n);
}

}  // namespace ranvier::models

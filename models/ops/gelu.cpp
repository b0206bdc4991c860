#include "models/ops/gelu.hpp"

#include "models/ops/dispatch.hpp"

namespace ranvier::models {

void gelu_forward(runtime::StreamView stream, runtime::DType dtype, void* y, const void* x, std::size_t n,
                  GeluForm form) {
  expect_kernel(dtype, "gelu");
  on_device<gelu_forward_cpu, gelu_forward_cuda>(
      stream, memory_cost(runtime::WorkKind::activation, dtype, bytes_of(2 * n, dtype)), dtype, y, x, n, form);
}

void gelu_backward(runtime::StreamView stream, runtime::DType dtype, void* d, const void* x, void* y, std::size_t n,
                   GeluForm form) {
  expect_kernel(dtype, "gelu");
  const std::size_t elements = (y != nullptr ? 4 : 3) * n;
  on_device<gelu_backward_cpu, gelu_backward_cuda>(
      stream, memory_cost(runtime::WorkKind::activation, dtype, bytes_of(elements, dtype)), dtype, d, x, y, n,
      form);
}

}  // namespace ranvier::models

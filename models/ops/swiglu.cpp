#include "models/ops/swiglu.hpp"

#include "models/ops/dispatch.hpp"

namespace ranvier::models {

void swiglu_forward(runtime::StreamView stream, runtime::DType dtype, void* y, const void* gate_up,
                    std::size_t rows, std::size_t channels) {
  expect_kernel(dtype, "SwiGLU");
  on_device<swiglu_forward_cpu, swiglu_forward_cuda>(stream, dtype, y, gate_up, rows, channels);
}

void swiglu_backward(runtime::StreamView stream, runtime::DType dtype, void* d, void* gate_up, std::size_t rows,
                     std::size_t channels) {
  expect_kernel(dtype, "SwiGLU");
  on_device<swiglu_backward_cpu, swiglu_backward_cuda>(stream, dtype, d, gate_up, rows, channels);
}

}  // namespace ranvier::models

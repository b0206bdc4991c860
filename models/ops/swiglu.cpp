#include "models/ops/swiglu.hpp"

#include "models/ops/dispatch.hpp"

namespace ranvier::models {
namespace {

/// Cost of reading or writing `arrays` arrays [N, F]; gate_up counts as two.
runtime::WorkCost cost_of(runtime::DType dtype, std::size_t arrays, std::size_t rows, std::size_t channels) {
  return memory_cost(runtime::WorkKind::activation, dtype, bytes_of(arrays * rows * channels, dtype));
}

}  // namespace

void swiglu_forward(runtime::StreamView stream, runtime::DType dtype, void* y, const void* gate_up,
                    std::size_t rows, std::size_t channels) {
  expect_kernel(dtype, "SwiGLU");
  on_device<swiglu_forward_cpu, swiglu_forward_cuda>(stream, cost_of(dtype, 3, rows, channels), dtype, y, gate_up,
                                                     rows, channels);
}

void swiglu_backward(runtime::StreamView stream, runtime::DType dtype, const void* d, void* gate_up, void* y,
                     std::size_t rows, std::size_t channels) {
  expect_kernel(dtype, "SwiGLU");
  on_device<swiglu_backward_cpu, swiglu_backward_cuda>(stream, cost_of(dtype, y != nullptr ? 6 : 5, rows, channels),
                                                       dtype, d, gate_up, y, rows, channels);
}

}  // namespace ranvier::models

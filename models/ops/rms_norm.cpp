#include "models/ops/rms_norm.hpp"

#include "models/ops/dispatch.hpp"
#include "runtime/device/cuda_build.hpp"

#include <algorithm>

namespace ranvier::models {
namespace {

void check(const RmsNormShape& shape, runtime::DType dtype) {
  expect_kernel(dtype, "RMS norm");
  const std::size_t row = shape.groups * shape.channels;
  expect(shape.x_row() >= row && shape.y_row() >= row, "RMS norm of {} times {} channels in rows of {} and {}",
         shape.groups, shape.channels, shape.x_row(), shape.y_row());
}

/// Cost of reading or writing `arrays` arrays [N, G, C], rstd per group, and the weight.
runtime::WorkCost cost_of(const RmsNormShape& shape, runtime::DType dtype, std::size_t arrays,
                          std::size_t more = 0) {
  const std::size_t groups = shape.rows * shape.groups;
  return memory_cost(runtime::WorkKind::norm, dtype,
                     bytes_of((arrays * groups + 1) * shape.channels, dtype) + groups * sizeof(float) + more);
}

}  // namespace

void rms_norm_forward(runtime::StreamView stream, const RmsNormShape& shape, runtime::DType dtype,
                      const RmsNormForward& arrays) {
  check(shape, dtype);
  on_device<rms_norm_forward_cpu, rms_norm_forward_cuda>(
      stream, cost_of(shape, dtype, arrays.branch == nullptr ? 2 : 4), shape, dtype, arrays);
}

void rms_norm_again(runtime::StreamView stream, const RmsNormShape& shape, runtime::DType dtype, void* y,
                    const float* rstd, const void* x, const void* weight) {
  check(shape, dtype);
  on_device<rms_norm_again_cpu, rms_norm_again_cuda>(stream, cost_of(shape, dtype, 2), shape, dtype, y, rstd, x,
                                                     weight);
}

std::size_t rms_norm_workspace_bytes(const RmsNormShape& shape) {
  if constexpr (runtime::with_cuda) {
    return std::max(rms_norm_cpu_workspace_bytes(shape), rms_norm_cuda_workspace_bytes(shape));
  }
  return rms_norm_cpu_workspace_bytes(shape);
}

void rms_norm_backward(runtime::StreamView stream, const RmsNormShape& shape, runtime::DType dtype,
                       const RmsNormBackward& arrays) {
  check(shape, dtype);
  on_device<rms_norm_backward_cpu, rms_norm_backward_cuda>(
      stream, cost_of(shape, dtype, arrays.residual == nullptr ? 3 : 4, shape.channels * sizeof(float)), shape,
      dtype, arrays);
}

}  // namespace ranvier::models

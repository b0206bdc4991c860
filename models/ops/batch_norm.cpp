#include "models/ops/batch_norm.hpp"

#include "models/ops/dispatch.hpp"

namespace ranvier::models {
namespace {

constexpr const char* operation = "batch norm";

}  // namespace

std::size_t batch_norm_workspace_bytes(const BatchNormShape& shape) {
  const std::size_t blocks = (shape.rows + batch_norm_block_rows - 1) / batch_norm_block_rows;
  return blocks * 2 * shape.channels * sizeof(float);
}

void batch_norm_statistics(runtime::StreamView stream, const BatchNormShape& shape, runtime::DType dtype,
                           float* statistics, const void* x, std::byte* workspace) {
  expect_kernel(dtype, operation);
  expect(shape.rows > 0, "statistics of no rows");
  on_device<batch_norm_statistics_cpu, batch_norm_statistics_cuda>(stream, shape, dtype, statistics, x, workspace);
}

void batch_norm_fixed_statistics(runtime::StreamView stream, const BatchNormShape& shape, runtime::DType dtype,
                                 float* statistics, const void* mean, const void* variance) {
  expect_kernel(dtype, operation);
  on_device<batch_norm_fixed_statistics_cpu, batch_norm_fixed_statistics_cuda>(stream, shape, dtype, statistics,
                                                                               mean, variance);
}

void batch_norm_forward(runtime::StreamView stream, const BatchNormShape& shape, runtime::DType dtype, void* y,
                        const BatchNormValues& values) {
  expect_kernel(dtype, operation);
  on_device<batch_norm_forward_cpu, batch_norm_forward_cuda>(stream, shape, dtype, y, values);
}

void batch_norm_backward(runtime::StreamView stream, const BatchNormShape& shape, runtime::DType dtype,
                         const BatchNormBackward& arrays, const BatchNormValues& values) {
  expect_kernel(dtype, operation);
  expect(arrays.d_addend == nullptr || arrays.d_addend != arrays.dy, "a gradient that is overwritten");
  on_device<batch_norm_backward_cpu, batch_norm_backward_cuda>(stream, shape, dtype, arrays, values);
}

}  // namespace ranvier::models

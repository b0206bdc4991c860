#include "models/ops/batch_norm.hpp"

#include "models/ops/dispatch.hpp"
#include "runtime/base/arithmetic.hpp"

namespace ranvier::models {
namespace {

constexpr const char* operation = "batch norm";

/// Cost of reading or writing `arrays` arrays [N, C], the statistics, and some arrays [C] of the run's dtype.
runtime::WorkCost cost_of(const BatchNormShape& shape, runtime::DType dtype, std::size_t arrays,
                          std::size_t parameters, std::size_t more = 0) {
  return memory_cost(runtime::WorkKind::batch_norm, dtype,
                     bytes_of((arrays * shape.rows + parameters) * shape.channels, dtype) +
                         3 * shape.channels * sizeof(float) + more);
}

}  // namespace

std::size_t batch_norm_workspace_bytes(const BatchNormShape& shape) {
  const std::size_t blocks = runtime::ceil_divide(shape.rows, batch_norm_block_rows);
  return blocks * 2 * shape.channels * sizeof(float);
}

void batch_norm_statistics(runtime::StreamView stream, const BatchNormShape& shape, runtime::DType dtype,
                           float* statistics, const void* x, std::byte* workspace) {
  expect_kernel(dtype, operation);
  expect(shape.rows > 0, "statistics of no rows");
  on_device<batch_norm_statistics_cpu, batch_norm_statistics_cuda>(stream, cost_of(shape, dtype, 1, 0), shape,
                                                                   dtype, statistics, x, workspace);
}

void batch_norm_fixed_statistics(runtime::StreamView stream, const BatchNormShape& shape, runtime::DType dtype,
                                 float* statistics, const void* mean, const void* variance) {
  expect_kernel(dtype, operation);
  on_device<batch_norm_fixed_statistics_cpu, batch_norm_fixed_statistics_cuda>(
      stream, cost_of(shape, dtype, 0, 2), shape, dtype, statistics, mean, variance);
}

void batch_norm_forward(runtime::StreamView stream, const BatchNormShape& shape, runtime::DType dtype, void* y,
                        const BatchNormValues& values) {
  expect_kernel(dtype, operation);
  on_device<batch_norm_forward_cpu, batch_norm_forward_cuda>(
      stream, cost_of(shape, dtype, values.addend == nullptr ? 2 : 3, 2), shape, dtype, y, values);
}

void batch_norm_backward(runtime::StreamView stream, const BatchNormShape& shape, runtime::DType dtype,
                         const BatchNormBackward& arrays, const BatchNormValues& values) {
  expect_kernel(dtype, operation);
  expect(arrays.d_addend == nullptr || arrays.d_addend != arrays.dy, "a gradient that is overwritten");
  const std::size_t of_addend = (values.addend != nullptr ? 1u : 0u) + (arrays.d_addend != nullptr ? 1u : 0u);
  on_device<batch_norm_backward_cpu, batch_norm_backward_cuda>(
      stream, cost_of(shape, dtype, 3 + of_addend, 2, 2 * shape.channels * sizeof(float)), shape, dtype, arrays,
      values);
}

}  // namespace ranvier::models

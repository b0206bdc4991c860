#include "models/ops/matrix_vector.hpp"

#include "models/ops/dispatch.hpp"

namespace ranvier::models {

void matrix_vector(runtime::StreamView stream, const MatrixVectorShape& shape, const MatrixVectorArrays& arrays) {
  expect_kernel(arrays.dtype, "matrix_vector");
  expect(arrays.y_dtype == runtime::DType::f32 || arrays.y_dtype == arrays.dtype, "matrix_vector of {} to {}",
         to_string(arrays.dtype), to_string(arrays.y_dtype));
  if (shape.n == 0) return;
  runtime::WorkCost cost = product_cost({.m = 1, .n = shape.n, .k = shape.k}, arrays.dtype, arrays.y_dtype, false);
  if (arrays.bias != nullptr) cost.bytes += static_cast<double>(bytes_of(shape.n, arrays.dtype));
  on_device<matrix_vector_cpu, matrix_vector_cuda>(stream, cost, shape, arrays);
}

}  // namespace ranvier::models

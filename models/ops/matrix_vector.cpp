#include "models/ops/matrix_vector.hpp"

#include "models/ops/expect_kernel.hpp"
#include "models/ops/matrix_vector_cpu.hpp"
#include "models/ops/matrix_vector_cuda.hpp"
#include "runtime/cuda_build.hpp"

namespace ranvier::models {

void matrix_vector(runtime::StreamView stream, const MatrixVectorShape& shape, const MatrixVectorArrays& arrays) {
  expect_kernel(arrays.dtype, "matrix_vector");
  expect(arrays.y_dtype == runtime::DType::f32 || arrays.y_dtype == arrays.dtype, "matrix_vector of {} to {}",
         to_string(arrays.dtype), to_string(arrays.y_dtype));
  if (shape.n == 0) return;
  if constexpr (runtime::with_cuda) {
    if (on_gpu(stream)) return matrix_vector_cuda(stream, shape, arrays);
  }
  stream.launch([=](runtime::ComputePool& pool) { matrix_vector_cpu(pool, shape, arrays); });
}

}  // namespace ranvier::models

// Matrix times vector at memory bandwidth, for decoders that produce one token at a time. Letters: N rows, K columns.
#pragma once

#include "runtime/base/dtype.hpp"
#include "runtime/device/stream.hpp"

#include <cstddef>

namespace ranvier::models {

struct MatrixVectorShape {
  std::size_t n = 0;
  std::size_t k = 0;
};

struct MatrixVectorArrays {
  void* y = nullptr;  ///< [N]
  runtime::DType y_dtype = runtime::DType::f32;
  const void* a = nullptr;                     ///< [N, K]
  const void* x = nullptr;                     ///< [K]
  runtime::DType dtype = runtime::DType::f32;  ///< type of a, x and bias
  const void* bias = nullptr;                  ///< [N], or null
};

/// y[N] = a[N, K] · x[K] + bias. Sums in float and rounds once to y_dtype, which is f32 or `dtype`. The order of sums
/// depends on K only, and differs from matmul().
void matrix_vector(runtime::StreamView stream, const MatrixVectorShape& shape, const MatrixVectorArrays& arrays);

// GPU kernels.
decltype(matrix_vector) matrix_vector_cuda;

}  // namespace ranvier::models

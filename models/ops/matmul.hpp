// Matrix multiplication, row-major. On a GPU with cuBLASLt. On the CPU with oneDNN, except bf16 with AMX and processors
// without AVX-512. Letters M, N, K as usual.
#pragma once

#include "runtime/base/dtype.hpp"
#include "runtime/device/stream.hpp"

#include <cstddef>

namespace ranvier::models {

struct MatmulShape {
  std::size_t m = 0;
  std::size_t n = 0;
  std::size_t k = 0;
  bool transpose_a = false;  ///< a is stored [K, M] instead of [M, K]
  bool transpose_b = false;  ///< b is stored [N, K] instead of [K, N]

  // Elements per stored row, if the array is part of a wider one; 0: rows have no gaps.
  std::size_t a_stride = 0;
  std::size_t b_stride = 0;
  std::size_t c_stride = 0;

  // Elements of a stored row, without gaps, and from one row to the next.
  [[nodiscard]] std::size_t a_columns() const noexcept { return transpose_a ? m : k; }
  [[nodiscard]] std::size_t b_columns() const noexcept { return transpose_b ? k : n; }
  [[nodiscard]] std::size_t a_row() const noexcept { return a_stride != 0 ? a_stride : a_columns(); }
  [[nodiscard]] std::size_t b_row() const noexcept { return b_stride != 0 ? b_stride : b_columns(); }
  [[nodiscard]] std::size_t c_row() const noexcept { return c_stride != 0 ? c_stride : n; }
};

struct MatmulArrays {
  void* c = nullptr;  ///< [M, N]
  runtime::DType c_dtype = runtime::DType::f32;
  const void* a = nullptr;
  const void* b = nullptr;
  runtime::DType dtype = runtime::DType::f32;  ///< type of a, b and bias
  const void* bias = nullptr;                  ///< [N], or null
  bool accumulate = false;                     ///< c += a·b; false: c = a·b + bias
};

/// Sums in float and rounds once to c_dtype, which is f32 or `dtype`. The order of sums does not depend on the number
/// of threads or rows. On a GPU it depends on shape, strides and the arrays' alignment.
void matmul(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays);

/// c[N] = a[K] · b[N, K] + bias at memory bandwidth, for decoders that produce one token at a time: M is 1, b is
/// transposed without gaps, nothing accumulates. Sums in float and rounds once like matmul(), but in another order,
/// which depends on K only.
void matrix_vector(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays);

/// sums[N] (+)= Σ_m dy[M, N]: the gradient of a bias, summed in float in the same order for any number of threads.
void column_sums(runtime::StreamView stream, void* sums, runtime::DType sums_dtype, const void* dy,
                 runtime::DType dtype, std::size_t m, std::size_t n, bool accumulate);

// GPU kernels; CPU kernels are in matmul_cpu.hpp.
decltype(matmul) matmul_cuda;
decltype(matrix_vector) matrix_vector_cuda;
decltype(column_sums) column_sums_cuda;
/// Our own kernel for everything that the library rejects; slow.
decltype(matmul) matmul_cuda_plain;

}  // namespace ranvier::models

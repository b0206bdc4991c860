// Matrix multiplication on the calling thread with oneDNN (v2 or v3); only its .cpp file includes oneDNN. Any thread,
// several at a time: each thread has its own primitives and scratch. They are created for the first multiplication of a
// shape (0.5 ms) and reused.
#pragma once

#include "runtime/base/dtype.hpp"

#include <cstddef>
#include <limits>

namespace ranvier::models {

struct LibraryMatmul {
  std::size_t m = 0;
  std::size_t n = 0;
  std::size_t k = 0;
  bool transpose_b = false;                    ///< b is stored [N, K] instead of [K, N]
  runtime::DType dtype = runtime::DType::f32;  ///< type of a, b and bias: f32 or bf16
  runtime::DType c_dtype = runtime::DType::f32;
  bool has_bias = false;
  bool accumulate = false;

  friend bool operator==(const LibraryMatmul&, const LibraryMatmul&) = default;
};

/// c[M, N] = a[M, K] · b + bias, or c += a · b, without gaps between rows. With gaps, oneDNN 2.6 uses slower kernels
/// with another order of sums. Sums in float, rounds once.
void library_matmul(const LibraryMatmul& product, void* c, const void* a, const void* b, const void* bias);

/// Conditions under which the library gives a row of c the same bits for any M.
struct LibraryRows {
  bool alike = true;  ///< false: only for equal M
  // Longer sums are split depending on M. The limit is higher for multiples of 64.
  std::size_t longest_k = std::numeric_limits<std::size_t>::max();
  std::size_t longest_k_by_64 = longest_k;
};
[[nodiscard]] LibraryRows library_rows(runtime::DType dtype);

/// Whether the library uses vectors of 16 floats.
[[nodiscard]] bool library_has_avx512();

/// Whether the processor has bf16 instructions, so that bf16 is faster than f32.
[[nodiscard]] bool library_has_bf16();

}  // namespace ranvier::models

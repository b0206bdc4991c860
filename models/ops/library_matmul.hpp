// One matrix product on the calling thread alone, through oneDNN (v2 or v3): the only file that knows its API.
// Any thread, several at a time: what oneDNN needs to keep (primitives, scratch) is each thread's own, made at
// the first product of a shape (0.5 ms) and used again afterwards.
#pragma once

#include "runtime/dtype.hpp"

#include <cstddef>

namespace ranvier::models {

struct LibraryMatmul {
  std::size_t m = 0;
  std::size_t n = 0;
  std::size_t k = 0;
  bool transpose_b = false;                    ///< b is stored [N, K] instead of [K, N]
  runtime::DType dtype = runtime::DType::f32;  ///< of a, b and bias: f32 or bf16
  runtime::DType c_dtype = runtime::DType::f32;
  bool has_bias = false;
  bool accumulate = false;

  friend bool operator==(const LibraryMatmul&, const LibraryMatmul&) = default;
};

/// c[M, N] = a[M, K] · b + bias, or c += a · b, all without gaps between rows: with gaps oneDNN 2.6 takes slower
/// kernels, and other ones, which sum in another order. Sums in float, rounds once.
void library_matmul(const LibraryMatmul& product, void* c, const void* a, const void* b, const void* bias);

/// Whether a row of c has the same bits whatever M is. Otherwise only products of one M agree.
[[nodiscard]] bool library_sums_rows_alike();

/// Whether the processor has instructions for products of bf16, so that they are faster than in f32.
[[nodiscard]] bool library_has_bf16();

}  // namespace ranvier::models

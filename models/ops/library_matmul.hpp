// One matrix product on the calling thread alone, through oneDNN (v2 or v3): the only file that knows its API.
// Any thread, several at a time: what oneDNN needs to keep (primitives, scratch) is each thread's own, made at
// the first product of a shape (0.5 ms) and used again afterwards.
#pragma once

#include "runtime/dtype.hpp"

#include <cstddef>
#include <limits>

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

/// Which products give a row of c the same bits whatever M is.
struct LibraryRows {
  bool alike = true;  ///< otherwise only products of one M agree
  // Sums over more than this many are cut by M, too; by a multiple of 64 it takes longer ones whole.
  std::size_t longest_k = std::numeric_limits<std::size_t>::max();
  std::size_t longest_k_by_64 = longest_k;
};
[[nodiscard]] LibraryRows library_rows(runtime::DType dtype);

/// Whether the library multiplies in vectors of 16 floats.
[[nodiscard]] bool library_has_avx512();

/// Whether the processor has instructions for products of bf16, so that they are faster than in f32.
[[nodiscard]] bool library_has_bf16();

}  // namespace ranvier::models

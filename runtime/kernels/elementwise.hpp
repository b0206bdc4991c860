// Copies, conversions and sums over flat arrays of n elements. All return at once; the work runs on the
// stream. Pointers are device or pinned memory, 64-byte aligned arrays or parts of them; n = 0 is allowed.
#pragma once

#include "runtime/dtype.hpp"
#include "runtime/stream.hpp"

#include <cstddef>

namespace ranvier::runtime {

/// From and to any memory; on `cuda`, one that touches MemorySpace::host may keep its caller waiting.
void copy(StreamView stream, void* to, const void* from, std::size_t bytes);
void fill_zero(StreamView stream, void* to, std::size_t bytes);

/// to[i] = from[i], rounded to nearest even where `to` is narrower (f32, bf16, f16).
void cast(StreamView stream, void* to, DType to_dtype, const void* from, DType from_dtype, std::size_t n);

/// to[i] = to[i] · factor, computed in float.
void scale(StreamView stream, void* to, DType dtype, float factor, std::size_t n);

/// to[i] = to[i] + from[i]; half precision is added in float and rounded once. f64 is allowed too.
void add(StreamView stream, void* to, const void* from, DType dtype, std::size_t n);

/// sums[b] = Σ from[i]² over block b of the array, in float: a sum depends on its block alone, not on the number of
/// threads or on what else a call takes. Infinity or NaN in, infinity or NaN out.
inline constexpr std::size_t squares_block_elements = 512;
void sums_of_squares(StreamView stream, float* sums, const void* from, DType dtype, std::size_t n);

/// *total = Σ from[i], added up in double, in an order that depends on n and the kind of device alone.
void sum(StreamView stream, double* total, const float* from, std::size_t n);

}  // namespace ranvier::runtime

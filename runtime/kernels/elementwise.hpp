// Copies, conversions and sums over arrays of n elements, flat or strided (dtype.hpp). Calls return at once;
// the work runs on the stream as one piece, regardless of the number of runs. Pointers are device or pinned memory:
// 64-byte aligned arrays or parts of them. n = 0 is allowed. Loop thread only.
#pragma once

#include "runtime/base/dtype.hpp"
#include "runtime/device/stream.hpp"

#include <cstddef>

namespace ranvier::runtime {

/// Copies from any memory to any memory. On `cuda`, a copy that touches MemorySpace::host may block the caller.
void copy(StreamView stream, void* to, const void* from, std::size_t bytes);
/// Copies `runs` runs of `run_bytes` each; strides are bytes between the starts of consecutive runs.
void copy_runs(StreamView stream, void* to, std::size_t to_stride, const void* from, std::size_t from_stride,
               std::size_t run_bytes, std::size_t runs);
/// Copies n elements of `width` bytes. One side is flat, or both have the same run length and start at the same
/// offset in a run.
void copy(StreamView stream, void* to, const StridedLayout& to_runs, const void* from,
          const StridedLayout& from_runs, std::size_t width, std::size_t n);
void fill_zero(StreamView stream, void* to, std::size_t bytes);

/// to[i] = from[i], rounded to nearest even if `to` is narrower (f32, bf16, f16).
void cast(StreamView stream, void* to, DType to_dtype, const void* from, DType from_dtype, std::size_t n,
          const StridedLayout& to_runs = {}, const StridedLayout& from_runs = {});

/// to[i] = to[i] · factor, computed in float.
void scale(StreamView stream, void* to, DType dtype, float factor, std::size_t n);

/// to[i] = to[i] + from[i]; half precision is added in float and rounded once. f64 is allowed as well.
void add(StreamView stream, void* to, const void* from, DType dtype, std::size_t n,
         const StridedLayout& to_runs = {}, const StridedLayout& from_runs = {});

/// sums[b] = Σ from[i]² over block b of the array, in float. A sum depends only on its block: not on the number of
/// threads, nor on the other blocks of the call. Infinity or NaN in, infinity or NaN out.
inline constexpr std::size_t squares_block_elements = 512;
void sums_of_squares(StreamView stream, float* sums, const void* from, DType dtype, std::size_t n);
/// Same sums over the first n elements of a strided array whose `first` is 0. Blocks start with each run; sums of
/// consecutive runs are `sums_stride` apart.
void sums_of_squares(StreamView stream, float* sums, std::size_t sums_stride, const void* from,
                     const StridedLayout& runs, DType dtype, std::size_t n);

/// *total = Σ from[i], added in double, in an order that depends only on n and the kind of device.
void sum(StreamView stream, double* total, const float* from, std::size_t n);

}  // namespace ranvier::runtime

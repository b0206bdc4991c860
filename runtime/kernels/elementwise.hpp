// Copies, conversions and sums over arrays of n elements, flat ones or such that lie in runs. All return at once; the
// work runs on the stream, as one piece of work however many runs there are. Pointers are device or pinned memory,
// 64-byte aligned arrays or parts of them; n = 0 is allowed.
#pragma once

#include "runtime/dtype.hpp"
#include "runtime/runs.hpp"
#include "runtime/stream.hpp"

#include <cstddef>

namespace ranvier::runtime {

/// From and to any memory; on `cuda`, one that touches MemorySpace::host may keep its caller waiting.
void copy(StreamView stream, void* to, const void* from, std::size_t bytes);
/// `runs` runs of `run_bytes`, which begin so many bytes apart.
void copy_runs(StreamView stream, void* to, std::size_t to_stride, const void* from, std::size_t from_stride,
               std::size_t run_bytes, std::size_t runs);
/// n elements of `width` bytes, of which one side is flat or both lie in equally long runs that begin together.
void copy(StreamView stream, void* to, const Runs& to_runs, const void* from, const Runs& from_runs,
          std::size_t width, std::size_t n);
void fill_zero(StreamView stream, void* to, std::size_t bytes);

/// to[i] = from[i], rounded to nearest even where `to` is narrower (f32, bf16, f16).
void cast(StreamView stream, void* to, DType to_dtype, const void* from, DType from_dtype, std::size_t n,
          const Runs& to_runs = {}, const Runs& from_runs = {});

/// to[i] = to[i] · factor, computed in float.
void scale(StreamView stream, void* to, DType dtype, float factor, std::size_t n);

/// to[i] = to[i] + from[i]; half precision is added in float and rounded once. f64 is allowed too.
void add(StreamView stream, void* to, const void* from, DType dtype, std::size_t n, const Runs& to_runs = {},
         const Runs& from_runs = {});

/// sums[b] = Σ from[i]² over block b of the array, in float: a sum depends on its block alone, not on the number of
/// threads or on what else a call takes. Infinity or NaN in, infinity or NaN out.
inline constexpr std::size_t squares_block_elements = 512;
void sums_of_squares(StreamView stream, float* sums, const void* from, DType dtype, std::size_t n);
/// The same of the first n elements of runs, whose `first` is 0: blocks begin with each run, and the sums of a run lie
/// `sums_stride` behind those of the one before.
void sums_of_squares(StreamView stream, float* sums, std::size_t sums_stride, const void* from, const Runs& runs,
                     DType dtype, std::size_t n);

/// *total = Σ from[i], added up in double, in an order that depends on n and the kind of device alone.
void sum(StreamView stream, double* total, const float* from, std::size_t n);

}  // namespace ranvier::runtime

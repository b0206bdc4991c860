// Elementwise arithmetic on host arrays, on the calling thread, for the kernels of CPU devices. Arrays of one call are
// identical or do not overlap; any alignment; n = 0 is allowed. Callable from any thread.
#pragma once

#include "runtime/base/dtype.hpp"

#include <cstddef>

namespace ranvier::runtime::cpu {

/// Number of elements per conversion to float, for kernels on half-precision arrays: they fit the L1 cache.
inline constexpr std::size_t chunk_elements = 1024;

// Same bits as to_float and from_float.
void to_floats(float* to, const Bf16* from, std::size_t n);
void to_floats(float* to, const F16* from, std::size_t n);
void to_floats(float* to, const float* from, std::size_t n);
void from_floats(Bf16* to, const float* from, std::size_t n);
void from_floats(F16* to, const float* from, std::size_t n);
void from_floats(float* to, const float* from, std::size_t n);

/// to[i] = to[i] · factor
void scale(float* to, float factor, std::size_t n);
/// to[i] = to[i] + from[i], rounded once
void add(float* to, const float* from, std::size_t n);
void add(double* to, const double* from, std::size_t n);
void add(Bf16* to, const Bf16* from, std::size_t n);
void add(F16* to, const F16* from, std::size_t n);

/// Σ from[i]², in an order that depends only on n.
[[nodiscard]] float sum_of_squares(const float* from, std::size_t n);

}  // namespace ranvier::runtime::cpu

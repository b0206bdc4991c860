// What the kernels of the models' operations share beside runtime/kernels/packs_cuda.cuh, whose names they have here,
// too: sums over warps, and how rows are read. Only .cu files include this.
#pragma once

#include "runtime/kernels/packs_cuda.cuh"

#include <algorithm>
#include <initializer_list>

namespace ranvier::models::cuda {

using runtime::cuda::aligned;
using runtime::cuda::Bf16;
using runtime::cuda::blocks_down;
using runtime::cuda::blocks_of;
using runtime::cuda::ceil_divide;
using runtime::cuda::F16;
using runtime::cuda::from_float;
using runtime::cuda::full_width;
using runtime::cuda::load;
using runtime::cuda::Pack;
using runtime::cuda::store;
using runtime::cuda::to_float;
using runtime::cuda::with_type;
using runtime::cuda::with_width;

inline constexpr float log2_e = 1.44269504f;

/// In every lane the same: float addition commutes.
__device__ inline float warp_sum(float value) {
#pragma unroll
  for (int distance = 16; distance != 0; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
  return value;
}
__device__ inline double warp_sum(double value) {
#pragma unroll
  for (int distance = 16; distance != 0; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
  return value;
}
__device__ inline float warp_max(float value) {
#pragma unroll
  for (int distance = 16; distance != 0; distance /= 2)
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, distance));
  return value;
}

/// Calls f(type, width) for arrays of `dtype` whose rows have `columns` elements: packs as wide as rows and all arrays
/// (null: not used) allow.
template <typename F>
void with_rows(runtime::DType dtype, std::size_t columns, std::initializer_list<const void*> arrays, const F& f) {
  with_type(dtype, [&](auto type) {
    using T = decltype(type);
    const bool wide = columns % full_width<T> == 0 &&
                      std::all_of(arrays.begin(), arrays.end(), [](const void* array) { return aligned(array); });
    with_width<T>(wide, [&](auto width) { f(type, width); });
  });
}

}  // namespace ranvier::models::cuda

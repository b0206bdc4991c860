// Functions shared by the models' GPU kernels, in addition to runtime/kernels/packs_cuda.cuh: sums over warps, access
// to rows. Only .cu files include this.
#pragma once

#include "runtime/base/arithmetic.hpp"
#include "runtime/device/cuda_native.hpp"
#include "runtime/kernels/launch.cuh"
#include "runtime/kernels/packs_cuda.cuh"

#include <algorithm>
#include <initializer_list>

namespace ranvier::models::cuda {

using runtime::ceil_divide;
using runtime::cuda::aligned;
using runtime::cuda::Bf16;
using runtime::cuda::blocks_down;
using runtime::cuda::blocks_of;
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

/// Sum over the warp, identical in every lane, because float addition is commutative.
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

/// Calls f(type, width) for arrays of `dtype` whose rows have `columns` elements. Packs are as wide as rows and arrays
/// allow; null arrays are ignored.
template <typename F>
void with_rows(runtime::DType dtype, std::size_t columns, std::initializer_list<const void*> arrays, const F& f) {
  with_type(dtype, [&](auto type) {
    using T = decltype(type);
    const bool wide = columns % full_width<T> == 0 &&
                      std::all_of(arrays.begin(), arrays.end(), [](const void* array) { return aligned(array); });
    with_width<T>(wide, [&](auto width) { f(type, width); });
  });
}

/// Launches `kernel` with a thread for each of `n` items, in blocks of `threads`. Does nothing if n is 0.
template <int threads, typename... Parameters, typename... Arguments>
void launch_each(const char* name, runtime::StreamView stream, std::size_t n, void (*kernel)(Parameters...),
                 Arguments... arguments) {
  if (n == 0) return;
  runtime::cuda::launch(name, runtime::cuda::native(stream), {blocks_of(n, threads), threads}, kernel,
                        arguments...);
}

}  // namespace ranvier::models::cuda

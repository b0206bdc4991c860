// Functions shared by the models' GPU kernels, in addition to runtime/kernels/packs_cuda.cuh: sums over warps, access
// to rows. Only .cu files include this.
#pragma once

#include "runtime/base/arithmetic.hpp"
#include "runtime/device/cuda_native.hpp"
#include "runtime/kernels/launch.cuh"
#include "runtime/kernels/packs_cuda.cuh"

#include <algorithm>
#include <initializer_list>
#include <type_traits>

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
  with_type(dtype, [&]<typename T>(T type) {
    const bool wide = columns % full_width<T> == 0 &&
                      std::all_of(arrays.begin(), arrays.end(), [](const void* array) { return aligned(array); });
    with_width<T>(wide, [&](auto width) { f(type, width); });
  });
}

/// Calls f(parts) with the smallest available number of parts of 32 channels that hold a head's `channels`.
template <typename F>
void with_parts(int channels, const F& f) {
  if (channels <= 64) {
    f(std::integral_constant<int, 2>{});
  } else if (channels <= 128) {
    f(std::integral_constant<int, 4>{});
  } else {
    f(std::integral_constant<int, 8>{});
  }
}

/// Argument of a kernel; a pointer to void gets the parameter's type.
template <typename Parameter, typename Argument>
Parameter to_parameter(Argument argument) {
  if constexpr (std::is_same_v<Argument, void*> || std::is_same_v<Argument, const void*>) {
    return static_cast<Parameter>(argument);
  } else {
    return argument;
  }
}

/// runtime::cuda::launch() for arrays of any type: arguments may be pointers to void.
template <typename... Parameters, typename... Arguments>
void launch(const char* name, runtime::StreamView stream, const runtime::cuda::Grid& grid,
            void (*kernel)(Parameters...), Arguments... arguments) {
  runtime::cuda::launch(name, runtime::cuda::native(stream), grid, kernel, to_parameter<Parameters>(arguments)...);
}

/// Launches `kernel` with a thread for each of `n` items, in blocks of `threads`. Does nothing if n is 0.
template <int threads, typename... Parameters, typename... Arguments>
void launch_each(const char* name, runtime::StreamView stream, std::size_t n, void (*kernel)(Parameters...),
                 Arguments... arguments) {
  if (n != 0) launch(name, stream, {blocks_of(n, threads), threads}, kernel, arguments...);
}

}  // namespace ranvier::models::cuda

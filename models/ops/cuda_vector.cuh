// What the GPU's kernels share: storage types, accesses of up to 16 bytes, sums over warps. As on the CPU,
// arithmetic is in float and a result is rounded once, to nearest even. Only .cu files include this.
#pragma once

#include "runtime/dtype.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace ranvier::models::cuda {

using Bf16 = __nv_bfloat16;
using F16 = __half;

inline constexpr float log2_e = 1.44269504f;

/// Calls `f` with a value of the type in which kernels see `dtype`.
template <typename F>
void with_type(runtime::DType dtype, F&& f) {
  switch (dtype) {
    case runtime::DType::bf16:
      return f(Bf16{});
    case runtime::DType::f16:
      return f(F16{});
    default:
      return f(float{});
  }
}

__device__ inline float to_float(float value) { return value; }
__device__ inline float to_float(Bf16 value) { return __bfloat162float(value); }
__device__ inline float to_float(F16 value) { return __half2float(value); }

template <typename T>
__device__ inline T from_float(float value);
template <>
__device__ inline float from_float<float>(float value) {
  return value;
}
template <>
__device__ inline Bf16 from_float<Bf16>(float value) {
  return __float2bfloat16_rn(value);
}
template <>
__device__ inline F16 from_float<F16>(float value) {
  return __float2half_rn(value);
}

/// Elements of a 16-byte access.
template <typename T>
inline constexpr int full_width = static_cast<int>(16 / sizeof(T));

template <typename T, int width>
struct alignas(sizeof(T) * width < 16 ? sizeof(T) * width : 16) Pack {
  T at[width];
};

template <int width, typename T>
__device__ inline void load(float (&to)[width], const T* from) {
  const auto pack = *reinterpret_cast<const Pack<T, width>*>(from);
#pragma unroll
  for (int i = 0; i < width; ++i) to[i] = to_float(pack.at[i]);
}

template <int width, typename T>
__device__ inline void store(T* to, const float (&from)[width]) {
  Pack<T, width> pack;
#pragma unroll
  for (int i = 0; i < width; ++i) pack.at[i] = from_float<T>(from[i]);
  *reinterpret_cast<Pack<T, width>*>(to) = pack;
}

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

// On the host: how arrays may be read -------------------------------------------------------------------

inline bool aligned(const void* array, std::size_t bytes = 16) {
  return reinterpret_cast<std::uintptr_t>(array) % bytes == 0;
}

[[nodiscard]] constexpr std::size_t ceil_divide(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

[[nodiscard]] constexpr unsigned blocks_of(std::size_t n, std::size_t per_block) {
  return static_cast<unsigned>(ceil_divide(n, per_block));
}

/// Calls `f` with std::integral_constant: full_width<T> where `wide`, else 1.
template <typename T, typename F>
void with_width(bool wide, F&& f) {
  if (wide) {
    f(std::integral_constant<int, full_width<T>>{});
  } else {
    f(std::integral_constant<int, 1>{});
  }
}

}  // namespace ranvier::models::cuda

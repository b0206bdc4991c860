// What elementwise CUDA kernels are made of: conversions of storage types, aligned accesses of 16 bytes, and a loop
// over the whole grid. For .cu files only.
#pragma once

#include "runtime/cuda_native.hpp"
#include "runtime/dtype.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace ranvier::runtime::cuda {

// As to_float and from_float of dtype.hpp, but for the payload of a NaN.
__device__ inline float as_float(float value) { return value; }
__device__ inline float as_float(Bf16 value) { return __uint_as_float(static_cast<unsigned>(value.bits) << 16); }
__device__ inline float as_float(F16 value) { return __half2float(__ushort_as_half(value.bits)); }

template <typename T>
__device__ T rounded(float value);
template <>
__device__ inline float rounded<float>(float value) {
  return value;
}
template <>
__device__ inline Bf16 rounded<Bf16>(float value) {
  return {__bfloat16_as_ushort(__float2bfloat16_rn(value))};
}
template <>
__device__ inline F16 rounded<F16>(float value) {
  return {__half_as_ushort(__float2half_rn(value))};
}

/// N elements of T by accesses as wide as they are together, 16 bytes at most; `at` is aligned to that.
template <int N, typename T>
__device__ void load(T (&values)[N], const T* at) {
  constexpr int bytes = N * static_cast<int>(sizeof(T));
  if constexpr (bytes % 16 == 0) {
    uint4 raw[bytes / 16];
    for (int i = 0; i < bytes / 16; ++i) raw[i] = reinterpret_cast<const uint4*>(at)[i];
    memcpy(values, raw, bytes);
  } else if constexpr (bytes == 8) {
    const uint2 raw = *reinterpret_cast<const uint2*>(at);
    memcpy(values, &raw, bytes);
  } else {
    for (int i = 0; i < N; ++i) values[i] = at[i];
  }
}

template <int N, typename T>
__device__ void store(T* at, const T (&values)[N]) {
  constexpr int bytes = N * static_cast<int>(sizeof(T));
  if constexpr (bytes % 16 == 0) {
    uint4 raw[bytes / 16];
    memcpy(raw, values, bytes);
    for (int i = 0; i < bytes / 16; ++i) reinterpret_cast<uint4*>(at)[i] = raw[i];
  } else if constexpr (bytes == 8) {
    uint2 raw;
    memcpy(&raw, values, bytes);
    *reinterpret_cast<uint2*>(at) = raw;
  } else {
    for (int i = 0; i < N; ++i) at[i] = values[i];
  }
}

/// N elements as floats.
template <int N, typename T>
__device__ void load_floats(float (&values)[N], const T* at) {
  T stored[N];
  load<N>(stored, at);
  for (int i = 0; i < N; ++i) values[i] = as_float(stored[i]);
}

template <int N, typename T>
__device__ void store_floats(T* at, const float (&values)[N]) {
  T stored[N];
  for (int i = 0; i < N; ++i) stored[i] = rounded<T>(values[i]);
  store<N>(at, stored);
}

/// Whether packs may begin at `pointer`.
inline bool is_aligned(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }

constexpr int elementwise_threads = 256;

/// An Operation has `static constexpr int width`, what 16 bytes of its widest array hold, and
/// `template <int N> void apply(std::size_t at)` for N elements from `at`.
template <typename Operation>
__global__ void __launch_bounds__(elementwise_threads) elementwise(Operation operation, std::size_t n, bool packed) {
  const std::size_t first = blockIdx.x * std::size_t{elementwise_threads} + threadIdx.x;
  const std::size_t stride = gridDim.x * std::size_t{elementwise_threads};
  const std::size_t packs = packed ? n / Operation::width : 0;
  for (std::size_t i = first; i < packs; i += stride) operation.template apply<Operation::width>(i * Operation::width);
  for (std::size_t i = packs * Operation::width + first; i < n; i += stride) operation.template apply<1>(i);
}

/// Runs `operation` on elements [0, n), with packs where `packed`.
template <typename Operation>
void launch_elementwise(StreamView stream, const Operation& operation, std::size_t n, bool packed, const char* name) {
  if (n == 0) return;
  constexpr std::size_t blocks_per_multiprocessor = 32;
  const cudaStream_t queue = native(stream);
  const std::size_t items = packed ? (n + Operation::width - 1) / Operation::width : n;
  const std::size_t blocks = (items + elementwise_threads - 1) / elementwise_threads;
  const auto most = static_cast<std::size_t>(properties(stream.device()).multiprocessors) * blocks_per_multiprocessor;
  elementwise<<<static_cast<unsigned>(std::min(blocks, most)), elementwise_threads, 0, queue>>>(operation, n, packed);
  check_launch(name);
}

}  // namespace ranvier::runtime::cuda

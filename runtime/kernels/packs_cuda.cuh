// Building blocks of CUDA kernels: storage types and their conversions, accesses of up to 16 bytes, and elementwise
// loops over the whole grid. As on the CPU, arithmetic is in float, and results are rounded once to nearest even.
// Only .cu files include this.
#pragma once

#include "runtime/base/arithmetic.hpp"
#include "runtime/base/dtype.hpp"
#include "runtime/base/error.hpp"
#include "runtime/device/cuda_native.hpp"
#include "runtime/kernels/launch.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace ranvier::runtime::cuda {

// Device types for the storage types of dtype.hpp.
using Bf16 = __nv_bfloat16;
using F16 = __half;

/// Calls `f` with a value of the device type of `dtype` (f32, bf16 or f16).
template <typename F>
void with_type(DType dtype, F&& f) {
  with_float_type<Bf16, F16>(dtype, f);
}

// Same as to_float and from_float of dtype.hpp, except for the payload of a NaN.
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

/// Number of elements in a 16-byte access.
template <typename T>
inline constexpr int full_width = static_cast<int>(16 / sizeof(T));

/// `width` elements read and written in one access of at most 16 bytes.
template <typename T, int width>
struct alignas(sizeof(T) * width < 16 ? sizeof(T) * width : 16) Pack {
  T at[width];
};

/// Type in which a pack is moved: compilers move some structures of small elements element by element.
template <typename Pack>
using Word =
    std::conditional_t<sizeof(Pack) == 16, uint4, std::conditional_t<sizeof(Pack) == 8, unsigned long long, Pack>>;

/// Loads elements of T, converted to float unless Value is T; `from` is aligned to the size of the pack.
template <int width, typename Value, typename T>
__device__ inline void load(Value (&to)[width], const T* from) {
  using Packed = Pack<T, width>;
  const auto word = *reinterpret_cast<const Word<Packed>*>(from);
  Packed pack;
  memcpy(&pack, &word, sizeof pack);
#pragma unroll
  for (int i = 0; i < width; ++i) {
    if constexpr (std::is_same_v<Value, T>) {
      to[i] = pack.at[i];
    } else {
      to[i] = to_float(pack.at[i]);
    }
  }
}

template <int width, typename Value, typename T>
__device__ inline void store(T* to, const Value (&from)[width]) {
  using Packed = Pack<T, width>;
  Packed pack;
#pragma unroll
  for (int i = 0; i < width; ++i) {
    if constexpr (std::is_same_v<Value, T>) {
      pack.at[i] = from[i];
    } else {
      pack.at[i] = from_float<T>(from[i]);
    }
  }
  Word<Packed> word;
  memcpy(&word, &pack, sizeof word);
  *reinterpret_cast<Word<Packed>*>(to) = word;
}

// Host side: alignment of arrays and grid sizes -----------------------------------------------------

/// Whether packs may start at `array`; true for null, which means an unused array.
inline bool aligned(const void* array, std::size_t bytes = 16) {
  return reinterpret_cast<std::uintptr_t>(array) % bytes == 0;
}

/// Blocks for gridDim.x. Throws ErrorCode::usage above the GPU's limit.
[[nodiscard]] constexpr unsigned blocks_of(std::size_t n, std::size_t per_block) {
  constexpr std::size_t most = 0x7fffffff;
  const std::size_t blocks = ceil_divide(n, per_block);
  if (blocks > most) {
    fail(ErrorCode::usage, "a kernel has too many blocks: {}, at most {}; use a smaller `microbatch_size`", blocks,
         most);
  }
  return static_cast<unsigned>(blocks);
}

/// Blocks for gridDim.y and gridDim.z, whose limit is 65535. Throws ErrorCode::usage above it.
[[nodiscard]] constexpr unsigned blocks_down(std::size_t n, std::size_t per_block) {
  constexpr std::size_t most = 65535;
  const std::size_t blocks = ceil_divide(n, per_block);
  if (blocks > most) {
    fail(ErrorCode::usage, "a GPU kernel supports at most {} rows, not {}; use a smaller `sequence_length`",
         most * per_block, n);
  }
  return static_cast<unsigned>(blocks);
}

/// Calls `f` with std::integral_constant: full_width<T> if `wide`, else 1.
template <typename T, typename F>
void with_width(bool wide, F&& f) {
  if (wide) {
    f(std::integral_constant<int, full_width<T>>{});
  } else {
    f(std::integral_constant<int, 1>{});
  }
}

constexpr int elementwise_threads = 256;

/// An Operation has `static constexpr int width`, the number of elements in 16 bytes of its widest array, and
/// `template <int N> void apply(std::size_t at)` for N elements starting at `at`.
template <typename Operation>
__global__ void __launch_bounds__(elementwise_threads)
    elementwise(Operation operation, std::size_t n, bool packed) {
  const std::size_t first = blockIdx.x * std::size_t{elementwise_threads} + threadIdx.x;
  const std::size_t stride = gridDim.x * std::size_t{elementwise_threads};
  const std::size_t packs = packed ? n / Operation::width : 0;
  for (std::size_t i = first; i < packs; i += stride)
    operation.template apply<Operation::width>(i * Operation::width);
  for (std::size_t i = packs * Operation::width + first; i < n; i += stride) operation.template apply<1>(i);
}

/// Runs `operation` on elements [0, n), with packs if `packed`.
template <typename Operation>
void launch_elementwise(StreamView stream, const Operation& operation, std::size_t n, bool packed,
                        const char* name) {
  if (n == 0) return;
  constexpr std::size_t blocks_per_multiprocessor = 32;
  const cudaStream_t queue = native(stream);
  const std::size_t items = packed ? ceil_divide(n, Operation::width) : n;
  const std::size_t blocks = ceil_divide(items, elementwise_threads);
  const auto most =
      static_cast<std::size_t>(properties(stream.device()).multiprocessors) * blocks_per_multiprocessor;
  launch(name, queue, {static_cast<unsigned>(std::min(blocks, most)), elementwise_threads}, elementwise<Operation>,
         operation, n, packed);
}

}  // namespace ranvier::runtime::cuda

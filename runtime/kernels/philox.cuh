// Philox in kernels: with std::array, nvcc needs more registers and a stack frame. Only .cu files include this.
#pragma once

#include "runtime/base/philox.hpp"

namespace ranvier::runtime::cuda {

__host__ __device__ inline uint4 philox(std::uint32_t low, std::uint32_t high, uint4 counter) {
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
  for (int round = 0; round < philox_rounds; ++round) {
    const std::uint64_t product0 = std::uint64_t{philox_multiplier0} * counter.x;
    const std::uint64_t product1 = std::uint64_t{philox_multiplier1} * counter.z;
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter.y ^ low, static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter.w ^ high, static_cast<std::uint32_t>(product0)};
    low += philox_weyl.low;
    high += philox_weyl.high;
  }
  return counter;
}

}  // namespace ranvier::runtime::cuda

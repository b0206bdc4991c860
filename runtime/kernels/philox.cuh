// Philox (runtime/base/philox.hpp) in kernels. Only .cu files include this.
#pragma once

#include <cstdint>

namespace ranvier::runtime::cuda {

__host__ __device__ inline uint4 philox(std::uint32_t low, std::uint32_t high, uint4 counter) {
  constexpr std::uint32_t multiplier0 = 0xD2511F53u, multiplier1 = 0xCD9E8D57u;
  constexpr std::uint32_t weyl0 = 0x9E3779B9u, weyl1 = 0xBB67AE85u;
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{multiplier0} * counter.x;
    const std::uint64_t product1 = std::uint64_t{multiplier1} * counter.z;
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter.y ^ low, static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter.w ^ high, static_cast<std::uint32_t>(product0)};
    low += weyl0;
    high += weyl1;
  }
  return counter;
}

}  // namespace ranvier::runtime::cuda

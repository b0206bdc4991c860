// Kernel launches with error checks, and dynamic shared memory. Only .cu files include this. Loop thread only.
#pragma once

#include "runtime/device/cuda_native.hpp"

#include <cstddef>

namespace ranvier::runtime::cuda {

struct Grid {
  dim3 blocks, threads;
  std::size_t shared_bytes = 0;  ///< size of block_memory() in the kernel
};

/// Returns before the kernel has run. Throws, with `name`, if the GPU refuses the launch.
template <typename... Parameters, typename... Arguments>
void launch(const char* name, cudaStream_t queue, const Grid& grid, void (*kernel)(Parameters...),
            Arguments... arguments) {
  kernel<<<grid.blocks, grid.threads, grid.shared_bytes, queue>>>(arguments...);
  check_launch(name);
}

/// Dynamic shared memory of the block, aligned to 16 bytes.
template <typename T>
__device__ T* block_memory() {
  extern __shared__ __align__(16) unsigned char ranvier_block_memory[];
  return reinterpret_cast<T*>(ranvier_block_memory);
}

}  // namespace ranvier::runtime::cuda

// How kernels are launched, and the memory of a block whose size its launch says. Only .cu files include this.
#pragma once

#include "runtime/cuda_native.hpp"

#include <cstddef>

namespace ranvier::runtime::cuda {

struct Grid {
  dim3 blocks, threads;
  std::size_t shared_bytes = 0;  ///< block_memory() in the kernel
};

/// Returns before the kernel ran. Throws with `name` where the GPU refuses the launch.
template <typename... Parameters, typename... Arguments>
void launch(const char* name, cudaStream_t queue, const Grid& grid, void (*kernel)(Parameters...),
            Arguments... arguments) {
  kernel<<<grid.blocks, grid.threads, grid.shared_bytes, queue>>>(arguments...);
  check_launch(name);
}

/// Aligned to 16 bytes.
template <typename T>
__device__ T* block_memory() {
  extern __shared__ __align__(16) unsigned char ranvier_block_memory[];
  return reinterpret_cast<T*>(ranvier_block_memory);
}

}  // namespace ranvier::runtime::cuda

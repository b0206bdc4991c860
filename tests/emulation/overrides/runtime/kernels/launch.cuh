// Replaces the real header: kernels run in tests/emulation/machine.cpp, before the call returns or when their graph
// runs.
#pragma once

#include "runtime/device/cuda_native.hpp"
#include "tests/emulation/machine.hpp"
#include "tests/emulation/stream.hpp"

#include <cstddef>

namespace ranvier::runtime::cuda {

struct Grid {
  dim3 blocks, threads;
  std::size_t shared_bytes = 0;
};

template <typename... Parameters, typename... Arguments>
void launch(const char* name, cudaStream_t queue, const Grid& grid, void (*kernel)(Parameters...),
            Arguments... arguments) {
  emulation::queue(queue, [=] {
    emulation::launch(name, reinterpret_cast<const void*>(kernel), grid.blocks, grid.threads, grid.shared_bytes,
                      [&] { kernel(arguments...); });
  });
  check_launch(name);
}

template <typename T>
T* block_memory() {
  return reinterpret_cast<T*>(emulation::block_memory());
}

}  // namespace ranvier::runtime::cuda

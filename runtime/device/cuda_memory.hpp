// GPU memory outside the budget of a `cuda` device (device.hpp). Declared in every build and defined if with_cuda is
// true (cuda_build.hpp). Callable from any thread unless stated otherwise.
#pragma once

#include "runtime/device/device.hpp"

#include <cstddef>

namespace ranvier::runtime {

/// Bytes reserved per process outside the budget: the driver's context, code, and the libraries' own buffers.
inline constexpr std::size_t cuda_reserve_bytes = std::size_t{1} << 30;

/// Makes Device::allocate() of a `cuda` device throw ErrorCode::internal for this space from now on. Above all for
/// pinned memory: a system may delay pinning until the GPU is idle, but an NCCL kernel may be waiting for a peer that
/// waits for this rank. Loop thread only.
void close_cuda_memory(Device& device, MemorySpace space);

/// Free bytes of the GPU behind a `cuda` device, other processes' memory excluded.
[[nodiscard]] std::size_t cuda_free_bytes(const Device& device);

}  // namespace ranvier::runtime

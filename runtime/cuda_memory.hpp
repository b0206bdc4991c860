// What a GPU has beside the budget of a `cuda` device (device.hpp). Declared in every build and defined where with_cuda
// is true (cuda_build.hpp). Any thread.
#pragma once

#include "runtime/device.hpp"

#include <cstddef>

namespace ranvier::runtime {

/// What a process takes of a GPU beside its budget: the driver's context, code, libraries' own buffers.
inline constexpr std::size_t cuda_reserve_bytes = std::size_t{1} << 30;

/// From now on Device::allocate() of a `cuda` device throws ErrorCode::internal for this space: what a run needs of it
/// was taken. Pinned memory above all, which a system may have wait for what runs on the GPU: a kernel of NCCL's waits
/// for a peer, which may wait for this rank. Loop thread only.
void close_cuda_memory(Device& device, MemorySpace space);

/// What the GPU behind a `cuda` device has free now, whoever has taken the rest.
[[nodiscard]] std::size_t cuda_free_bytes(const Device& device);

}  // namespace ranvier::runtime

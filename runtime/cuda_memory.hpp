// What a GPU has beside the budget of a `cuda` device (device.hpp). Declared in every build and defined where with_cuda
// is true (cuda_build.hpp). Any thread.
#pragma once

#include <cstddef>

namespace ranvier::runtime {

class Device;

/// What a process takes of a GPU beside its budget: the driver's context, code, libraries' own buffers.
inline constexpr std::size_t cuda_reserve_bytes = std::size_t{1} << 30;

/// What the GPU behind a `cuda` device has free now, whoever has taken the rest.
[[nodiscard]] std::size_t cuda_free_bytes(const Device& device);

}  // namespace ranvier::runtime

// --device, which every program that computes has: "cpu", "inline", "cuda" or "cuda:N". Any thread.
#pragma once

#include "runtime/device.hpp"
#include "runtime/mpi_transport.hpp"
#include "runtime/options.hpp"

#include <cstddef>
#include <optional>

namespace ranvier::apps {

enum class DeviceFlag { cpu, inline_, cuda };

/// Reads and writes both: `gpu` is the N of cuda:N. What this build has no device for is refused.
[[nodiscard]] runtime::OptionBinding device_flag(DeviceFlag& device, std::optional<int>& gpu);

/// The GPU of this rank: the one that was named, or its machine's in turn.
[[nodiscard]] runtime::CudaDeviceOptions gpu_of_rank(const runtime::MpiSession& session, std::optional<int> gpu);

/// Memory that this rank may plan on its GPU: what is free there, or no more than `asked`. Throws where there is none.
[[nodiscard]] std::size_t device_budget(const runtime::MpiSession& session, std::optional<int> gpu,
                                        std::optional<std::size_t> asked);

}  // namespace ranvier::apps

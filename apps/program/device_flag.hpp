// Flag --device of all computing programs: "cpu", "inline", "cuda" or "cuda:N". Callable from any thread.
#pragma once

#include "apps/program/options.hpp"
#include "runtime/device/device.hpp"
#include "runtime/transport/mpi_transport.hpp"

#include <cstddef>
#include <optional>

namespace ranvier::apps {

enum class DeviceFlag { cpu, inline_, cuda };

/// Binding of --device; `gpu` is the N of cuda:N. Refuses devices that this build lacks.
[[nodiscard]] OptionBinding device_flag(DeviceFlag& device, std::optional<int>& gpu);

/// GPU of this rank: the named one, or the machine's GPUs in turn.
[[nodiscard]] runtime::CudaDeviceOptions gpu_of_rank(const runtime::MpiSession& session, std::optional<int> gpu);

/// Bytes that this rank may plan on its GPU: free memory, at most `asked`. Throws if there is no GPU.
[[nodiscard]] std::size_t device_budget(const runtime::MpiSession& session, std::optional<int> gpu,
                                        std::optional<std::size_t> asked);

}  // namespace ranvier::apps

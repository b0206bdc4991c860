// Checks that machines and devices have the memory that ranks plan, before any of it is used. Linux grants more than it
// has, and later kills the process that uses it.
#pragma once

#include "actors/rank/trainer_options.hpp"
#include "runtime/device/arena.hpp"
#include "runtime/device/memory_limit.hpp"
#include "runtime/transport/mpi_transport.hpp"

#include <cstddef>
#include <functional>
#include <string>

namespace ranvier::apps {

/// Host memory of a rank with this plan; device memory counts unless the device is a GPU.
[[nodiscard]] std::size_t host_bytes(const actors::TrainerOptions& options, const runtime::MemoryPlan& plan);

/// Names flags that reduce memory.
using MemoryAdvice = std::function<std::string()>;

/// Throws ErrorCode::memory if `needed_bytes` of the machine's `ranks` exceed `limit`. The message has the reason, the
/// calling rank's `plan` and the advice.
void check_host_memory(const actors::TrainerOptions& options, const runtime::MemoryPlan& plan,
                       std::size_t needed_bytes, int ranks, const runtime::MemoryLimit& limit,
                       const MemoryAdvice& advice);

/// Checks this machine; called by all ranks of `session` with their own plan. Only the rank that prints its error calls
/// `advice`. Throws FailedTogether.
void check_host_memory(runtime::MpiSession& session, const actors::TrainerOptions& options,
                       const runtime::MemoryPlan& plan, const MemoryAdvice& advice);

/// The same for the memory of each rank's device.
void check_device_memory(runtime::MpiSession& session, const runtime::Device& device,
                         const runtime::MemoryPlan& plan, const MemoryAdvice& advice);

}  // namespace ranvier::apps

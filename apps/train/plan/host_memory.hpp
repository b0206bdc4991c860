// Whether a machine has the memory that its ranks plan, asked before any of it is touched: the system grants more
// than it has, and later ends whoever uses it.
#pragma once

#include "actors/rank/trainer_options.hpp"
#include "runtime/arena.hpp"
#include "runtime/memory_limit.hpp"
#include "runtime/mpi_transport.hpp"

#include <cstddef>

namespace ranvier::apps {

/// What a rank with this plan takes of its machine's memory; a GPU has its own.
[[nodiscard]] std::size_t host_bytes(const actors::TrainerOptions& options, const runtime::MemoryPlan& plan);

/// Throws ErrorCode::memory, with the reason, the plan and what would help there, unless `needed_bytes` of all
/// `ranks` of the machine are within `limit`. `plan` is that of the calling one.
void check_host_memory(const actors::TrainerOptions& options, const runtime::MemoryPlan& plan,
                       std::size_t needed_bytes, int ranks, const runtime::MemoryLimit& limit);

/// The same for this machine and its ranks in `session`, all of which call it with their own plan. Throws
/// FailedTogether.
void check_host_memory(runtime::MpiSession& session, const actors::TrainerOptions& options,
                       const runtime::MemoryPlan& plan);

}  // namespace ranvier::apps

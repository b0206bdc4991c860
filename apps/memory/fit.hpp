// Fit check of a planned job: memory and disk space needed and available, largest kind of memory, and flags that would
// make the job fit. Each suggested flag is planned, not estimated. Pure, deterministic functions, callable from any
// thread.
#pragma once

#include "actors/rank/rank_plan.hpp"
#include "apps/memory/job_capacity.hpp"
#include "models/core/architecture.hpp"
#include "models/core/sample_source.hpp"

#include <span>
#include <string>

namespace ranvier::apps {

/// Bytes needed by the rank or node that needs most.
struct MemoryNeeds {
  std::size_t device = 0;  ///< device memory per rank
  std::size_t stage = 0;   ///< stage of the rank with the most device memory
  std::size_t host = 0;    ///< host memory per node
  std::size_t disk = 0;    ///< state files per node
};
/// `stages[s]`: plan of a rank of stage s; plans of a column are identical. `device_is_host`: as in JobCapacity.
[[nodiscard]] MemoryNeeds memory_needs(std::span<const actors::RankPlan* const> stages,
                                       const actors::TrainerOptions& options, bool device_is_host);

struct FitResult {
  bool fits = true;
  std::string text;  ///< lines for the console, each with a newline
};

[[nodiscard]] FitResult verdict(const models::Architecture& architecture, const models::SampleBytes& sample,
                                const actors::TrainerOptions& options, std::span<const actors::RankPlan> stages,
                                const JobCapacity& capacity);

}  // namespace ranvier::apps

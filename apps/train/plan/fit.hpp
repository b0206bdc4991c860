// Whether a planned job fits into what its ranks have, what is largest, and which flags would make it fit: each of
// them is tried by planning the job with it, not guessed. Pure; any thread; the same on all ranks that are given
// the same.
#pragma once

#include "actors/rank/rank_plan.hpp"
#include "apps/train/plan/job_capacity.hpp"
#include "models/architecture.hpp"
#include "models/sample_source.hpp"

#include <span>
#include <string>

namespace ranvier::apps {

/// Of the rank, or of the node, that needs the most.
struct MemoryNeeds {
  std::size_t device = 0;  ///< of a rank
  std::size_t stage = 0;   ///< that rank's
  std::size_t host = 0;    ///< of a node
  std::size_t disk = 0;    ///< of a node
};
/// `stages[s]` is the plan of a rank of stage s, of which those of a column are alike. `device_is_host`: Room's.
[[nodiscard]] MemoryNeeds memory_needs(std::span<const actors::RankPlan* const> stages,
                                       const actors::TrainerOptions& options, bool device_is_host);

struct FitResult {
  bool fits = true;
  std::string text;  ///< lines for people, each ended
};

[[nodiscard]] FitResult verdict(const models::Architecture& architecture, const models::SampleBytes& sample,
                                const actors::TrainerOptions& options, std::span<const actors::RankPlan> stages,
                                const JobCapacity& capacity);

}  // namespace ranvier::apps

// Planned memory of all ranks together, by kind of state and tier, next to the formula of Myelin §V-B. Works for a
// cluster that is not available (--dry-run --world). Pure functions, callable from any thread.
#pragma once

#include "actors/rank/rank_plan.hpp"
#include "models/core/architecture.hpp"

#include <string>
#include <vector>

namespace ranvier::apps {

/// Bytes of one kind of memory over all ranks.
struct JobBytes {
  std::size_t device = 0;
  std::size_t host = 0;  ///< pinned memory included
  std::size_t nvme = 0;
};

/// `stages`: plan of one rank per stage; plans of a column are identical.
[[nodiscard]] JobBytes job_bytes(const std::vector<actors::RankPlan>& stages, int g_data, runtime::MemoryKind kind);

/// One line per kind with its meaning, the total, and Myelin's formula.
[[nodiscard]] std::string job_memory_table(const models::Architecture& architecture,
                                           const std::vector<actors::RankPlan>& stages,
                                           const actors::TrainerOptions& options);

/// Number of units in all stages that keep offloaded optimizer states on the device, as "5 of 12 trained units"; empty
/// without --optimizer-budget.
[[nodiscard]] std::string units_in_budget(const std::vector<actors::RankPlan>& stages,
                                          const actors::TierOptions& tiers);

/// Bytes per checkpoint, in total and per rank; empty without --checkpoint.
[[nodiscard]] std::string checkpoint_line(const std::vector<actors::RankPlan>& stages, int rows);

}  // namespace ranvier::apps

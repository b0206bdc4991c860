// What a whole job holds, summed over all ranks of a grid that need not exist: by kind of state and by where it
// lies, beside what Myelin §V-B counts for such a job. Pure; any thread.
#pragma once

#include "actors/rank/rank_plan.hpp"
#include "models/architecture.hpp"

#include <string>
#include <vector>

namespace ranvier::apps {

/// Bytes of a state over all ranks.
struct JobBytes {
  std::size_t device = 0;
  std::size_t host = 0;  ///< pinned memory included
  std::size_t nvme = 0;
};

/// `stages` has the plan of one rank of each stage; ranks of a column are alike.
[[nodiscard]] JobBytes job_bytes(const std::vector<actors::RankPlan>& stages, int g_data, runtime::MemoryKind kind);

/// A line for each kind, with what it is, a sum, and Myelin's formula.
[[nodiscard]] std::string job_memory_table(const models::Architecture& architecture,
                                           const std::vector<actors::RankPlan>& stages,
                                           const actors::TrainerOptions& options);

/// What --checkpoint writes each time, of a rank and of all; empty where none are taken.
[[nodiscard]] std::string checkpoint_line(const std::vector<actors::RankPlan>& stages, int rows);

}  // namespace ranvier::apps

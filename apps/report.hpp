// The tables that a run shows at its start and its end.
#pragma once

#include "actors/rank_plan.hpp"
#include "apps/train_options.hpp"
#include "models/architecture.hpp"
#include "runtime/trace.hpp"

#include <string>
#include <vector>

namespace ranvier::apps {

/// Resolved options, grid, layers per stage, parameters, and memory by kind of a rank of every stage.
[[nodiscard]] std::string start_table(const TrainOptions& options, const models::Architecture& architecture,
                                      const std::vector<actors::RankPlan>& stages);

/// Every item of the memory of the stage that needs the most.
[[nodiscard]] std::string largest_memory_table(const std::vector<actors::RankPlan>& stages);

/// How one rank spent its time, in seconds.
struct RankTimes {
  double total = 0, forward = 0, backward = 0, optimizer = 0, wait = 0, reduce = 0;
};
[[nodiscard]] RankTimes times_of(const runtime::Trace& trace, double total_seconds);
[[nodiscard]] std::string end_table(const std::vector<RankTimes>& ranks, const actors::TrainerOptions& options);

}  // namespace ranvier::apps

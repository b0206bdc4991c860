// The tables that a run shows at its start and its end.
#pragma once

#include "actors/rank/rank_plan.hpp"
#include "apps/train/options/train_options.hpp"
#include "apps/train/totals.hpp"
#include "models/architecture.hpp"

#include <string>
#include <vector>

namespace ranvier::apps {

/// What was given and what followed from it, grid, layers per stage, parameters, and memory by kind of a rank of every
/// stage: a screen of 24 lines and 120 columns, where neither a value nor a note is longer. Of a dry run all flags and
/// all stages, however long that is.
[[nodiscard]] std::string start_table(const TrainOptions& options, const models::Architecture& architecture,
                                      const std::vector<actors::RankPlan>& stages);

/// Every item of the memory of the stage that needs the most.
[[nodiscard]] std::string largest_memory_table(const std::vector<actors::RankPlan>& stages);

/// What the end of a batch is on a rank of the stage that has the most of it, as operations.
[[nodiscard]] std::string operations_line(const std::vector<actors::RankPlan>& stages);

/// A line for each rank, or, of more than 16, for each stage.
[[nodiscard]] std::string end_table(const std::vector<RankTotals>& ranks, const actors::TrainerOptions& options);

}  // namespace ranvier::apps

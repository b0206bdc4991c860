// Tables of the startup output and the final summary, and the bottleneck of a run in one line. Pure functions, callable
// from any thread.
#pragma once

#include "actors/rank/rank_plan.hpp"
#include "apps/options/train_options.hpp"
#include "apps/train/totals.hpp"
#include "models/core/architecture.hpp"

#include <string>
#include <vector>

namespace ranvier::apps {

/// "embedding … h.1".
[[nodiscard]] std::string layer_names(const models::Architecture& architecture, models::LayerRange range);

/// Given and derived flags, model, grid, and per stage layers and memory by kind. At most 24 lines of 120 columns,
/// unless a value or note is longer. A dry run lists all flags and stages.
[[nodiscard]] std::string start_table(const TrainOptions& options, const models::Architecture& architecture,
                                      const std::vector<actors::RankPlan>& stages);

/// All memory items of the stage that needs most device memory.
[[nodiscard]] std::string largest_memory_table(const std::vector<actors::RankPlan>& stages);

/// Launches, collectives and messages at the end of a batch, for the stage with most of them.
[[nodiscard]] std::string operations_line(const std::vector<actors::RankPlan>& stages);

/// Shares of time and memory: one line per rank, or per stage if there are more than 16 ranks.
[[nodiscard]] std::string end_table(const std::vector<RankTotals>& ranks, const actors::TrainerOptions& options);

struct Bubble {
  double share = 0;      ///< fraction of the time, 0 to 1
  bool at_most = false;  ///< upper bound: assumes that the next stage waits for all recomputation
};

/// Idle time of the stages at the start and end of a batch (tests/bench/schedules). Assumes equal stages, links that
/// take no time, and equal times of the forward pass, the input gradient and the weight gradient.
[[nodiscard]] Bubble bubble_of(const actors::TrainerOptions& options);
/// "14.3% with 4 microbatches".
[[nodiscard]] std::string bubble_text(const actors::TrainerOptions& options);

/// "bottleneck: computing, …"; empty if any rank has not trained. Fractions of time are means over ranks.
[[nodiscard]] std::string bottleneck_line(const std::vector<RankTotals>& ranks,
                                          const actors::TrainerOptions& options,
                                          const models::Architecture& architecture);

}  // namespace ranvier::apps

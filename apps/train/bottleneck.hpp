// Bottleneck of a run in one line, with flags that may help. Pure functions, callable from any thread.
#pragma once

#include "actors/rank/trainer_options.hpp"
#include "apps/train/totals.hpp"
#include "models/core/architecture.hpp"

#include <string>
#include <vector>

namespace ranvier::apps {

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

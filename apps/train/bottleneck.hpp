// What kept a run from being faster, in a sentence, and what may help. Pure; any thread.
#pragma once

#include "actors/rank/trainer_options.hpp"
#include "apps/train/totals.hpp"
#include "models/architecture.hpp"

#include <string>
#include <vector>

namespace ranvier::apps {

struct Bubble {
  double share = 0;      ///< of the time
  bool at_most = false;  ///< layers that are computed again count as if the next stage waited for all of them
};

/// What stages idle as a batch begins and ends, where they are alike, links take no time, and passes forward, gradients
/// of inputs and of weights take the same (tests/bench/schedules).
[[nodiscard]] Bubble bubble_of(const actors::TrainerOptions& options);
/// "14.3% with 4 microbatches".
[[nodiscard]] std::string bubble_text(const actors::TrainerOptions& options);

/// "limited by computing: …"; empty: no rank has trained. A share of time is that of an average rank.
[[nodiscard]] std::string bottleneck_line(const std::vector<RankTotals>& ranks,
                                          const actors::TrainerOptions& options,
                                          const models::Architecture& architecture);

}  // namespace ranvier::apps

// What kept a run from being faster, in a sentence, and what may help. Pure; any thread.
#pragma once

#include "actors/rank/trainer_options.hpp"
#include "apps/train/totals.hpp"

#include <string>
#include <vector>

namespace ranvier::apps {

/// The share of the time that stages which are alike idle as a batch begins and ends, with chunks as many times less.
[[nodiscard]] double bubble_of(const actors::TrainerOptions& options);

/// "limited by computing: …"; empty: no rank has trained. A share of time is that of an average rank.
[[nodiscard]] std::string limit_line(const std::vector<RankTotals>& ranks, const actors::TrainerOptions& options);

}  // namespace ranvier::apps

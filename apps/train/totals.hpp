// Times and memory of each rank, gathered on rank 0 at the end of a run. Loop thread only.
#pragma once

#include "actors/rank/rank.hpp"
#include "apps/job/rank_run.hpp"
#include "apps/train/step_meter.hpp"

#include <cstddef>
#include <functional>
#include <vector>

namespace ranvier::apps {

/// Times in seconds.
struct RankTotals {
  double seconds = 0, forward = 0, backward = 0, weights = 0, optimizer = 0, wait = 0, gather = 0, reduce = 0,
         send = 0;
  double files = 0;           ///< file transfers of tiers while nothing was computed
  double checkpoint = 0;      ///< steps that waited for copies of checkpoints
  StepMeter::UsualStep step;  ///< medians per step
  std::size_t planned_bytes = 0;
  std::size_t device_bytes = 0;         ///< allocated on the device
  std::size_t peak_resident_bytes = 0;  ///< peak resident memory, mapped files included
  actors::Optimizer::Answers answers;
};

/// Called by all ranks. `done` receives all totals on rank 0 and an empty vector on other ranks.
void gather_totals(const RankRun& run, const actors::Rank& rank, const StepMeter& meter, double seconds,
                   std::function<void(std::vector<RankTotals>)> done);

}  // namespace ranvier::apps

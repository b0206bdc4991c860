// What a run took of each rank, brought to rank 0 at its end. Loop thread only.
#pragma once

#include "actors/rank/rank.hpp"
#include "apps/train/rank_run.hpp"
#include "apps/train/step_meter.hpp"

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace ranvier::apps {

struct RankTotals {
  double seconds = 0, forward = 0, backward = 0, weights = 0, optimizer = 0, wait = 0, gather = 0, reduce = 0,
         send = 0;
  double files = 0;           ///< that a tier's files were read or written while nothing was computed
  double checkpoint = 0;      ///< that steps waited for copies for checkpoints
  StepMeter::UsualStep step;  ///< a usual one
  std::size_t planned_bytes = 0;
  std::size_t device_bytes = 0;         ///< that the rank has taken of its device's memory
  std::size_t peak_resident_bytes = 0;  ///< so far, MPI, libraries and mapped data included
  actors::Optimizer::Answers answers;
};

/// All ranks call it; `done` gets those of all ranks on rank 0, and none elsewhere.
void gather_totals(const RankRun& run, const actors::Rank& rank, const StepMeter& meter, double seconds,
                   std::function<void(std::vector<RankTotals>)> done);

}  // namespace ranvier::apps

// Times, traffic and memory of each rank, gathered on rank 0 at the end of a run. Loop thread only.
#pragma once

#include "actors/rank/rank.hpp"
#include "actors/rank/recent_median.hpp"
#include "apps/job/rank_run.hpp"
#include "offload/tiers.hpp"
#include "runtime/trace/trace.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace ranvier::apps {

/// Medians of a rank's time and traffic per step, without evaluations, checkpoints and generated texts, which only some
/// steps have. The first step is not counted: no optimizer update precedes it.
class StepMeter {
 public:
  struct UsualStep {
    double seconds = 0;
    double busy_seconds = 0;                   ///< time of passes and optimizer
    double bytes_intra = 0, bytes_inter = 0;   ///< bytes sent inside the node, to other nodes
    double bytes_read = 0, bytes_written = 0;  ///< bytes of state files
    std::size_t steps = 0;                     ///< number of measured steps
  };

  /// `nodes`: node of every rank; outlives this object.
  StepMeter(int rank, std::span<const int> nodes) : rank_(rank), nodes_(nodes) {}

  /// Records the end of a step. `sent`: bytes to each rank since the start; `files`: file bytes since the start.
  void step(const runtime::Trace& trace, std::span<const std::uint64_t> sent, const offload::FileBytes& files);
  /// `steps` is 0 if only the first step ran.
  [[nodiscard]] UsualStep usual() const;

 private:
  static constexpr std::array figures{&UsualStep::seconds,     &UsualStep::busy_seconds, &UsualStep::bytes_intra,
                                      &UsualStep::bytes_inter, &UsualStep::bytes_read,   &UsualStep::bytes_written};

  int rank_;
  std::span<const int> nodes_;
  std::size_t ended_ = 0;
  UsualStep last_;  // totals since the start
  std::array<actors::RecentMedian, figures.size()> usual_;
};

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

// Medians of a rank's time and traffic per step, without evaluations, checkpoints and generated texts, which only some
// steps have. The first step is not counted: no optimizer update precedes it. Loop thread only.
#pragma once

#include "actors/rank/recent_median.hpp"
#include "offload/tiers.hpp"
#include "runtime/base/clock.hpp"
#include "runtime/trace/trace.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ranvier::apps {

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
  enum Figure { seconds, busy, intra, inter, read, written, figures };

  int rank_;
  std::span<const int> nodes_;
  std::size_t ended_ = 0;
  std::array<double, figures> last_{};  // totals since the start
  std::array<actors::RecentMedian, figures> usual_;
};

}  // namespace ranvier::apps

// What a usual step takes of one rank: medians over steps, so that what comes beside some of them (evaluations,
// checkpoints, samples of text) does not count. The first step is left out, as no optimizer's step comes before it.
// Loop thread only.
#pragma once

#include "actors/watch/recent_median.hpp"
#include "offload/tiers.hpp"
#include "runtime/clock.hpp"
#include "runtime/trace.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ranvier::apps {

class StepMeter {
 public:
  struct UsualStep {
    double seconds = 0;
    double busy_seconds = 0;                   ///< of passes and the optimizer
    double bytes_intra = 0, bytes_inter = 0;   ///< sent to other ranks of this node, and of others
    double bytes_read = 0, bytes_written = 0;  ///< of files that hold states
    std::size_t steps = 0;                     ///< that were measured
  };

  /// `nodes`: of every rank. They outlive it.
  StepMeter(int rank, std::span<const int> nodes) : rank_(rank), nodes_(nodes) {}

  /// A step has ended. `sent`: bytes to each rank so far; `files`: bytes of files so far.
  void step(const runtime::Trace& trace, std::span<const std::uint64_t> sent, const offload::FileBytes& files);
  /// `steps` is 0 where there was none but the first.
  [[nodiscard]] UsualStep usual() const;

 private:
  enum Figure { seconds, busy, intra, inter, read, written, figures };

  int rank_;
  std::span<const int> nodes_;
  std::size_t ended_ = 0;
  std::array<double, figures> last_{};  // since the beginning
  std::array<actors::RecentMedian, figures> usual_;
};

}  // namespace ranvier::apps

// Times work on a stream of a device, as all ranks that share a machine do at the same time, or one of them alone. Loop
// thread only.
#pragma once

#include "apps/bench/bench_rank.hpp"
#include "apps/bench/profile/rate_fit.hpp"
#include "runtime/device.hpp"
#include "runtime/dtype.hpp"
#include "runtime/stream.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace ranvier::apps {

/// Work on arrays that lie one behind the other.
struct ProfiledWork {
  std::size_t bytes = 0;  ///< of its arrays
  std::function<void(runtime::StreamView stream, std::byte* arrays)> queue;
};

/// Which memory repetitions of work meet.
enum class Caches {
  warm,  ///< the same arrays again
  cold,  ///< others, until those of before have left the caches
};

class WorkTimer {
 public:
  /// Takes `memory_bytes` of the device's memory, in which the arrays lie. The rank outlives it, and the stream
  /// measurements.
  WorkTimer(BenchRank& rank, runtime::Device& device, std::size_t memory_bytes);

  /// From here on ranks that do not lead wait while the others measure, or all measure again.
  void set_alone(bool alone, bool leads) { waits_ = alone && !leads; }

  /// Arrays are filled with small numbers of this type from here on: of both signs, or above 0.
  void fill_with(runtime::StreamView stream, runtime::DType dtype, bool both_signs);

  /// Seconds of one, the median of several rounds on this rank and of what the ranks that measure say; equal on all,
  /// which call it alike. Takes about `budget_seconds`, or a round of it where that is longer.
  double seconds_of(runtime::StreamView stream, const ProfiledWork& work, Caches caches, double budget_seconds);
  [[nodiscard]] std::vector<runtime::WorkCost> costs(runtime::StreamView stream, const ProfiledWork& work);
  /// With its costs.
  TimedWork timed(runtime::StreamView stream, const ProfiledWork& work, Caches caches, double budget_seconds);

 private:
  /// The median of what all ranks say; of one that says nothing, -1.
  double agree(double seconds);
  void fill(runtime::StreamView stream, std::size_t bytes);

  BenchRank& rank_;
  bool apart_;
  bool waits_ = false;
  runtime::Buffer memory_, pattern_;
  runtime::Buffer numbers_;  ///< floats, of which the pattern is made
};

}  // namespace ranvier::apps

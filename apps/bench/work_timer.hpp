// Times work on a device stream, on all ranks of a machine at the same time or on one rank, and fits rates to the
// times. Loop thread only.
#pragma once

#include "apps/bench/bench_rank.hpp"
#include "runtime/base/dtype.hpp"
#include "runtime/device/device.hpp"
#include "runtime/device/stream.hpp"
#include "runtime/device/work_cost.hpp"
#include "runtime/machine/machine_profile.hpp"

#include <cstddef>
#include <functional>
#include <vector>

namespace ranvier::apps {

/// Work on consecutive arrays.
struct ProfiledWork {
  std::size_t bytes = 0;  ///< total bytes of its arrays
  std::function<void(runtime::StreamView stream, std::byte* arrays)> queue;
};

/// Cache state of the arrays in repetitions.
enum class Caches {
  warm,  ///< same arrays in every repetition
  cold,  ///< other arrays, enough to displace the previous ones from caches
};

/// Launches of one kind of work, timed together.
struct TimedWork {
  std::vector<runtime::WorkCost> costs;
  double seconds = 0;
};

class WorkTimer {
 public:
  /// Allocates `memory_bytes` of device memory for the arrays. The rank outlives it; streams outlive measurements.
  WorkTimer(BenchRank& rank, runtime::Device& device, std::size_t memory_bytes);

  /// Sets whether only leading ranks measure, while the others wait, or all ranks.
  void set_alone(bool alone, bool leads) { waits_ = alone && !leads; }

  /// Sets the content of arrays: small numbers of this type, positive or with both signs.
  void fill_with(runtime::StreamView stream, runtime::DType dtype, bool both_signs);

  /// Seconds per repetition: median of several rounds, then median over measuring ranks. Collective; equal on all
  /// ranks. Takes about `budget_seconds`, at least one round.
  double seconds_of(runtime::StreamView stream, const ProfiledWork& work, Caches caches, double budget_seconds);
  [[nodiscard]] std::vector<runtime::WorkCost> costs(runtime::StreamView stream, const ProfiledWork& work);

 private:
  /// Median over ranks; a rank without a value passes -1.
  double agree(double seconds);
  void fill(runtime::StreamView stream, std::size_t bytes);

  BenchRank& rank_;
  bool apart_;
  bool waits_ = false;
  runtime::Buffer memory_, pattern_;
  runtime::Buffer numbers_;  ///< float source of the pattern
};

/// Fits the launch time and flops per second (bytes per second for work without flops) to the times of a small and a
/// large case.
[[nodiscard]] runtime::WorkRate fit_rate(const TimedWork& small, const TimedWork& large);

/// Rounds to four digits, the precision of a measurement.
[[nodiscard]] double rounded(double value);

}  // namespace ranvier::apps

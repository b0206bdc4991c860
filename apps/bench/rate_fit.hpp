// Fits the rate of a kind of work to the times of a small and a large case. Pure functions, callable from any thread.
#pragma once

#include "runtime/device/work_cost.hpp"
#include "runtime/machine/machine_profile.hpp"

#include <span>
#include <vector>

namespace ranvier::apps {

/// Launches of one kind of work, timed together.
struct TimedWork {
  std::vector<runtime::WorkCost> costs;
  double seconds = 0;
};

/// Fits the launch time and flops per second (bytes per second for work without flops) to both times.
[[nodiscard]] runtime::WorkRate fit_rate(const TimedWork& small, const TimedWork& large);

/// Rounds to four digits, the precision of a measurement.
[[nodiscard]] double rounded(double value);

}  // namespace ranvier::apps

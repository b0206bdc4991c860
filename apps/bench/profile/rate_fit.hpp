// Rates of a kind of work, from what a small and a large piece of it took. Pure; any thread.
#pragma once

#include "runtime/machine_profile.hpp"
#include "runtime/work_cost.hpp"

#include <span>
#include <vector>

namespace ranvier::apps {

/// Pieces of work of one kind that were timed together.
struct TimedWork {
  std::vector<runtime::WorkCost> costs;
  double seconds = 0;
};

/// What a launch takes, from the small one, and flops per second (of work without flops: bytes per second), from what
/// the large one takes beyond its launches.
[[nodiscard]] runtime::WorkRate fit_rate(const TimedWork& small, const TimedWork& large);

/// To four digits, as many as a measurement has.
[[nodiscard]] double rounded(double value);

/// Of some values, at least one.
[[nodiscard]] double median(std::vector<double> values);

}  // namespace ranvier::apps

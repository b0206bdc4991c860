#include "apps/bench/rate_fit.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace ranvier::apps {

runtime::WorkRate fit_rate(const TimedWork& small, const TimedWork& large) {
  const auto sum_of = [](const TimedWork& work, double runtime::WorkCost::* field) {
    return std::accumulate(work.costs.begin(), work.costs.end(), 0.0,
                           [&](double sum, const runtime::WorkCost& cost) { return sum + cost.*field; });
  };
  const bool has_flops = sum_of(large, &runtime::WorkCost::flops) > 0;
  const auto field = has_flops ? &runtime::WorkCost::flops : &runtime::WorkCost::bytes;
  const double small_amount = sum_of(small, field), large_amount = sum_of(large, field);
  const auto small_pieces = static_cast<double>(small.costs.size());
  const auto large_pieces = static_cast<double>(large.costs.size());

  // Two equations: seconds = pieces · launch + amount / rate.
  const double determinant = large_amount * small_pieces - small_amount * large_pieces;
  double launch = (large_amount * small.seconds - small_amount * large.seconds) / determinant;
  // The clamp handles disturbed measurements, in which the large work took hardly longer.
  launch = determinant > 0 ? std::clamp(launch, 0.0, 0.5 * large.seconds / large_pieces) : 0.0;
  const double rate = large_amount / (large.seconds - large_pieces * launch);
  runtime::WorkRate result{.launch_seconds = launch};
  (has_flops ? result.flops_per_second : result.bytes_per_second) = rate;
  return result;
}

double rounded(double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  const double unit = std::pow(10.0, std::floor(std::log10(std::abs(value))) - 3);
  return std::round(value / unit) * unit;
}

}  // namespace ranvier::apps

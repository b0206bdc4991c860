#include "actors/rank/learning_rate.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ranvier::actors {

double learning_rate(const LearningRateOptions& options, std::int64_t step) {
  if (step <= options.warmup_steps) {
    return options.peak * static_cast<double>(step) / static_cast<double>(options.warmup_steps);
  }
  if (options.decay == LearningRateOptions::Decay::constant) return options.peak;
  const std::int64_t decaying = options.steps - options.warmup_steps;
  const double progress =
      decaying > 1
          ? std::min(1.0, static_cast<double>(step - options.warmup_steps - 1) / static_cast<double>(decaying - 1))
          : 0.0;
  const double remaining = options.decay == LearningRateOptions::Decay::linear
                               ? 1.0 - progress
                               : 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  return options.least + (options.peak - options.least) * remaining;
}

double muon_rate(const LearningRateOptions& options) {
  return options.muon_peak > 0 && options.peak > 0 ? options.muon_peak / options.peak : 1;
}

void LossScale::update(bool overflow) {
  if (!dynamic) return;
  if (overflow) {
    scale = std::max(1.0, scale / 2);
    good_steps = 0;
  } else if (++good_steps == growth_interval) {
    scale = std::min(scale * 2, 0x1p24);
    good_steps = 0;
  }
}

}  // namespace ranvier::actors

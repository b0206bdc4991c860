// Learning rate and loss scale as pure functions of values that all ranks agree on.
#pragma once

#include <cstdint>

namespace ranvier::actors {

struct LearningRateOptions {
  enum class Decay { constant, linear, cosine };
  double peak = 6e-4;
  double least = 0;               ///< learning rate of the last step; linear and cosine only
  std::int64_t warmup_steps = 0;  ///< warm-up step i has learning rate peak · i / warmup_steps
  std::int64_t steps = 1;         ///< steps of the run
  Decay decay = Decay::constant;
  double muon_peak = 0;  ///< peak for Muon's matrices, with the same warm-up and decay; 0: `peak`
};

/// Learning rate of `step`, counted from 1.
[[nodiscard]] double learning_rate(const LearningRateOptions& options, std::int64_t step);

/// Muon's learning rate for matrices in units of learning_rate(), the same in all steps; 1 if `peak` is 0.
[[nodiscard]] double muon_rate(const LearningRateOptions& options);

/// Dynamic loss scaling of fp16 (Micikevicius et al. 2018): backs off by half when gradients overflow, grows
/// twofold after `growth_interval` good steps.
struct LossScale {
  double scale = 1;
  bool dynamic = false;
  std::int64_t growth_interval = 1000;
  std::int64_t good_steps = 0;

  void update(bool overflow);
};

}  // namespace ranvier::actors

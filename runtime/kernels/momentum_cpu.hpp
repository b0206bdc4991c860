// Rules of momentum.hpp on host arrays, on the calling thread. Callable from any thread.
#pragma once

#include "runtime/kernels/adamw.hpp"

#include <cstddef>

namespace ranvier::runtime::cpu {

/// Factors of one step, computed once in double.
struct MomentumConstants {
  explicit MomentumConstants(const AdamWOptions& options);

  float gradient_scale;
  float momentum, one_minus_momentum;
  float learning_rate;
  float kept;  ///< 1 - lr · decay, for elements with weight decay
  float kept_otherwise = 1;

  [[nodiscard]] float kept_of(bool decays) const { return decays ? kept : kept_otherwise; }
};

// Updates of n elements; the arrays do not overlap.

/// w = w · kept - lr · g.
void sgd(float* weights, const float* gradient, std::size_t n, float kept, const MomentumConstants& constants);
void sgd_momentum(float* weights, float* m, const float* gradient, std::size_t n, float kept,
                  const MomentumConstants& constants);
void muon_momentum(float* update, float* m, const float* gradient, std::size_t n,
                   const MomentumConstants& constants);

}  // namespace ranvier::runtime::cpu

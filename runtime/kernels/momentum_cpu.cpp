#include "runtime/kernels/momentum_cpu.hpp"

#include <cmath>

namespace ranvier::runtime::cpu {

MomentumConstants::MomentumConstants(const AdamWOptions& options)
    : gradient_scale(static_cast<float>(options.gradient_scale)),
      momentum(static_cast<float>(options.momentum)),
      one_minus_momentum(static_cast<float>(1 - options.momentum)),
      learning_rate(static_cast<float>(options.learning_rate)),
      kept(static_cast<float>(1 - options.learning_rate * options.weight_decay)) {
  if (options.average == 0) return;
  gradient_scale = 1;
  learning_rate = static_cast<float>(-options.average);
  kept = kept_otherwise = static_cast<float>(1 - options.average);
}

// std::fma determines which product is not rounded; compilers would choose.

void sgd(float* __restrict weights, const float* __restrict gradient, std::size_t n, float kept,
         const MomentumConstants& constants) {
  const MomentumConstants c = constants;  // local copy: stores to the arrays cannot alias it
  for (std::size_t i = 0; i < n; ++i) {
    const float g = gradient[i] * c.gradient_scale;
    weights[i] = std::fma(weights[i], kept, -(c.learning_rate * g));
  }
}

void sgd_momentum(float* __restrict weights, float* __restrict m, const float* __restrict gradient, std::size_t n,
                  float kept, const MomentumConstants& constants) {
  const MomentumConstants c = constants;
  for (std::size_t i = 0; i < n; ++i) {
    const float g = gradient[i] * c.gradient_scale;
    const float next = std::fma(m[i], c.momentum, g);
    m[i] = next;
    weights[i] = std::fma(weights[i], kept, -(c.learning_rate * next));
  }
}

void muon_momentum(float* __restrict update, float* __restrict m, const float* __restrict gradient, std::size_t n,
                   const MomentumConstants& constants) {
  const MomentumConstants c = constants;
  for (std::size_t i = 0; i < n; ++i) {
    const float g = gradient[i] * c.gradient_scale;
    const float next = std::fma(c.one_minus_momentum, g - m[i], m[i]);
    m[i] = next;
    update[i] = std::fma(c.momentum, next - g, g);
  }
}

}  // namespace ranvier::runtime::cpu

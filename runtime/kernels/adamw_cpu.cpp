#include "runtime/kernels/adamw_cpu.hpp"

#include <cmath>

namespace ranvier::runtime::cpu {

AdamWConstants::AdamWConstants(const AdamWOptions& options)
    : gradient_scale(static_cast<float>(options.gradient_scale)),
      beta1(static_cast<float>(options.beta1)),
      one_minus_beta1(static_cast<float>(1 - options.beta1)),
      beta2(static_cast<float>(options.beta2)),
      one_minus_beta2(static_cast<float>(1 - options.beta2)),
      step_size(static_cast<float>(options.learning_rate / (1 - std::pow(options.beta1, options.step)))),
      root_scale(static_cast<float>(1 / std::sqrt(1 - std::pow(options.beta2, options.step)))),
      epsilon(static_cast<float>(options.epsilon)),
      kept(static_cast<float>(1 - options.learning_rate * options.weight_decay)) {
  if (options.average == 0) return;
  // With these constants AdamW computes the average: m is the gradient, v stays 0, and the root is 1.
  gradient_scale = 1;
  beta1 = 0;
  one_minus_beta1 = 1;
  beta2 = 1;
  one_minus_beta2 = 0;
  step_size = static_cast<float>(-options.average);
  root_scale = 0;
  epsilon = 1;
  kept = kept_otherwise = static_cast<float>(1 - options.average);
}

void adamw(float* __restrict weights, float* __restrict m, float* __restrict v, const float* __restrict gradient,
           std::size_t n, float kept, const AdamWConstants& constants) {
  const AdamWConstants c = constants;  // local copy: stores to the arrays cannot alias it
  for (std::size_t i = 0; i < n; ++i) {
    const float g = gradient[i] * c.gradient_scale;
    const float next_m = m[i] * c.beta1 + c.one_minus_beta1 * g;
    const float next_v = v[i] * c.beta2 + c.one_minus_beta2 * g * g;
    m[i] = next_m;
    v[i] = next_v;
    const float root = std::sqrt(next_v) * c.root_scale + c.epsilon;
    weights[i] = weights[i] * kept - c.step_size * next_m / root;
  }
}

}  // namespace ranvier::runtime::cpu

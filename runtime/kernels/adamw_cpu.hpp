// AdamW on host arrays, on the calling thread. Callable from any thread.
#pragma once

#include "runtime/kernels/adamw.hpp"

#include <cstddef>

namespace ranvier::runtime::cpu {

/// Factors of one step, computed once in double.
struct AdamWConstants {
  explicit AdamWConstants(const AdamWOptions& options);

  float gradient_scale;
  float beta1, one_minus_beta1;
  float beta2, one_minus_beta2;
  float step_size;   ///< lr / bias1
  float root_scale;  ///< 1 / √bias2
  float epsilon;
  float kept;  ///< 1 - lr · decay, for elements with weight decay
  float kept_otherwise = 1;

  [[nodiscard]] float kept_of(bool decays) const { return decays ? kept : kept_otherwise; }
};

/// Updates n elements; the arrays do not overlap. `kept` is the factor on a weight that is left by weight decay.
void adamw(float* weights, float* m, float* v, const float* gradient, std::size_t n, float kept,
           const AdamWConstants& constants);

}  // namespace ranvier::runtime::cpu

// AdamW on host arrays, on the calling thread. Callable from any thread.
#pragma once

#include "runtime/kernels/adamw.hpp"

#include <cstddef>
#include <cstdint>

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

  [[nodiscard]] float kept_of(bool decays) const { return decays ? kept : 1.0f; }
};

/// Random numbers for stochastic rounding: 16 bits each for the weight, m and v of an element.
struct RoundingBits {
  static constexpr std::size_t max_elements = 256;

  [[nodiscard]] const std::uint16_t* weights() const { return all[0] + first; }
  [[nodiscard]] const std::uint16_t* m() const { return all[1] + first; }
  [[nodiscard]] const std::uint16_t* v() const { return all[2] + first; }

  std::size_t first = 0;
  std::uint16_t all[3][max_elements + 2];
};
/// Numbers of n elements starting at `position` of AdamWRuns::positions; at most RoundingBits::max_elements.
void draw(RoundingBits& bits, const RoundingOrigin& origin, std::uint32_t step, std::size_t position,
          std::size_t n);
/// Rounds values stochastically to bf16, in place.
void round_stochastically(float* values, const std::uint16_t* random, std::size_t n);

/// Updates n elements; the arrays do not overlap. `kept` is the factor on a weight that is left by weight decay.
void adamw(float* weights, float* m, float* v, const float* gradient, std::size_t n, float kept,
           const AdamWConstants& constants);

}  // namespace ranvier::runtime::cpu

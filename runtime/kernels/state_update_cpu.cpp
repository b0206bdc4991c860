// Rules and stochastic rounding on the host.
#include "runtime/kernels/state_update.hpp"

#include <cmath>

namespace ranvier::runtime {

AdamWRule::AdamWRule(const UpdateOptions& options)
    : gradient_scale(static_cast<float>(options.gradient_scale)),
      beta1(static_cast<float>(options.beta1)),
      one_minus_beta1(static_cast<float>(1 - options.beta1)),
      beta2(static_cast<float>(options.beta2)),
      one_minus_beta2(static_cast<float>(1 - options.beta2)),
      step_size(static_cast<float>(options.learning_rate / (1 - std::pow(options.beta1, options.step)))),
      root_scale(static_cast<float>(1 / std::sqrt(1 - std::pow(options.beta2, options.step)))),
      epsilon(static_cast<float>(options.epsilon)),
      kept(static_cast<float>(1 - options.learning_rate * options.weight_decay)) {}

MomentumRule::MomentumRule(const UpdateOptions& options)
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

// Stores to the arrays cannot alias a local copy of the factors.

void AdamWRule::operator()(float* __restrict weights, float* __restrict m, float* __restrict v,
                           const float* __restrict gradient, std::size_t n, bool decays) const {
  const AdamWRule c = *this;
  const float kept_part = c.kept_of(decays);
  for (std::size_t i = 0; i < n; ++i) {
    const float g = gradient[i] * c.gradient_scale;
    const float next_m = m[i] * c.beta1 + c.one_minus_beta1 * g;
    const float next_v = v[i] * c.beta2 + c.one_minus_beta2 * g * g;
    m[i] = next_m;
    v[i] = next_v;
    const float root = std::sqrt(next_v) * c.root_scale + c.epsilon;
    weights[i] = weights[i] * kept_part - c.step_size * next_m / root;
  }
}

// std::fma determines which product is not rounded; compilers would choose.

void SgdRule::operator()(float* __restrict weights, float* __restrict m, float*, const float* __restrict gradient,
                         std::size_t n, bool decays) const {
  const SgdRule c = *this;
  const float kept_part = c.kept_of(decays);
  if (!c.has_m) {
    for (std::size_t i = 0; i < n; ++i) {
      const float g = gradient[i] * c.gradient_scale;
      weights[i] = std::fma(weights[i], kept_part, -(c.learning_rate * g));
    }
    return;
  }
  for (std::size_t i = 0; i < n; ++i) {
    const float g = gradient[i] * c.gradient_scale;
    const float next = std::fma(m[i], c.momentum, g);
    m[i] = next;
    weights[i] = std::fma(weights[i], kept_part, -(c.learning_rate * next));
  }
}

void MuonRule::operator()(float* __restrict update, float* __restrict m, float*, const float* __restrict gradient,
                          std::size_t n, bool) const {
  const MuonRule c = *this;
  for (std::size_t i = 0; i < n; ++i) {
    const float g = gradient[i] * c.gradient_scale;
    const float next = std::fma(c.one_minus_momentum, g - m[i], m[i]);
    m[i] = next;
    update[i] = std::fma(c.momentum, next - g, g);
  }
}

namespace cpu {

void draw(RoundingBits& bits, const RoundingOrigin& origin, std::uint32_t step, std::size_t position,
          std::size_t n) {
  // Each pair of elements has the numbers of one call of philox(). All pairs together take the rounds: that vectorizes.
  constexpr std::size_t max_pairs = RoundingBits::max_elements / 2 + 1;
  std::uint32_t words[4][max_pairs];
  const std::uint64_t first = origin.element + position, pair = first / 2;
  const std::size_t pairs = (first % 2 + n + 1) / 2;
  for (std::size_t p = 0; p < pairs; ++p) {
    words[0][p] = static_cast<std::uint32_t>(pair + p);
    words[1][p] = static_cast<std::uint32_t>((pair + p) >> 32);
    words[2][p] = origin.unit;
    words[3][p] = step;
  }
  PhiloxKey key = origin.key;
  for (int round = 0; round < philox_rounds; ++round) {
    for (std::size_t p = 0; p < pairs; ++p) {
      const PhiloxCounter next = philox_round(key, {words[0][p], words[1][p], words[2][p], words[3][p]});
      for (std::size_t w = 0; w < 4; ++w) words[w][p] = next[w];
    }
    key = next_key(key);
  }
  for (std::size_t p = 0; p < pairs; ++p) {
    bits.all[0][2 * p] = static_cast<std::uint16_t>(words[0][p]);
    bits.all[0][2 * p + 1] = static_cast<std::uint16_t>(words[2][p]);
    bits.all[1][2 * p] = static_cast<std::uint16_t>(words[0][p] >> 16);
    bits.all[1][2 * p + 1] = static_cast<std::uint16_t>(words[2][p] >> 16);
    bits.all[2][2 * p] = static_cast<std::uint16_t>(words[1][p]);
    bits.all[2][2 * p + 1] = static_cast<std::uint16_t>(words[3][p]);
  }
  bits.first = first % 2;
}

void round_stochastically(float* values, const std::uint16_t* random, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) values[i] = round_to_bf16(values[i], random[i]);
}

}  // namespace cpu
}  // namespace ranvier::runtime

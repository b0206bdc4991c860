// Dropout decisions (dropout.hpp) in kernels. Only .cu files include this.
#pragma once

#include "models/ops/dropout.hpp"
#include "runtime/kernels/philox.cuh"

#include <cmath>
#include <cstdint>

namespace ranvier::models::cuda {

using runtime::cuda::philox;

/// A Dropout in the form that kernels use.
struct DropoutRule {
  DropoutRule() = default;
  explicit DropoutRule(const Dropout& dropout)
      : on(dropout.rate > 0),
        threshold(static_cast<std::uint32_t>(std::ceil(dropout.rate * 0x1p24f))),
        scale(on ? dropout.kept_scale() : 1.0f),
        key_low(dropout.key.low),
        key_high(dropout.key.high),
        first_sample(dropout.first_sample) {}

  bool on = false;
  std::uint32_t threshold = 0;  ///< elements whose 24 high bits are at least this are kept: uniform(bits) >= rate
  float scale = 1;
  std::uint32_t key_low = 0, key_high = 0;
  std::int64_t first_sample = 0;
};

/// Bits 0 … 3: whether elements 4·quad … 4·quad+3 of sample first_sample + b are kept.
__host__ __device__ inline std::uint32_t kept_of_quad(const DropoutRule& rule, std::int64_t b, std::uint64_t quad) {
  const auto sample = static_cast<std::uint64_t>(rule.first_sample + b);
  const uint4 bits = philox(rule.key_low, rule.key_high,
                            {static_cast<std::uint32_t>(quad), static_cast<std::uint32_t>(quad >> 32),
                             static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(sample >> 32)});
  return ((bits.x >> 8) >= rule.threshold ? 1u : 0u) | ((bits.y >> 8) >= rule.threshold ? 2u : 0u) |
         ((bits.z >> 8) >= rule.threshold ? 4u : 0u) | ((bits.w >> 8) >= rule.threshold ? 8u : 0u);
}

/// The same for four elements starting at any `element`.
__host__ __device__ inline std::uint32_t kept_of_four(const DropoutRule& rule, std::int64_t b,
                                                      std::uint64_t element) {
  const auto offset = static_cast<std::uint32_t>(element & 3);
  std::uint32_t bits = kept_of_quad(rule, b, element / 4);
  if (offset != 0) bits = (bits | kept_of_quad(rule, b, element / 4 + 1) << 4) >> offset;
  return bits & 15u;
}

}  // namespace ranvier::models::cuda

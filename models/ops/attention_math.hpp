// Vector functions of attention, in addition to vector_math.hpp.
#pragma once

#include "models/ops/vector_math.hpp"

#include <cstdint>

namespace ranvier::models {

inline constexpr float log2_e = 1.44269504f;

[[nodiscard]] inline simd::Ints lane_numbers() {
  simd::Ints numbers{};
  for (std::size_t i = 0; i < simd::lanes; ++i) numbers[i] = static_cast<std::int32_t>(i);
  return numbers;
}

/// 2^x for x up to 127, with relative error at most 2e-7; 0 below -126; NaN stays NaN.
[[nodiscard]] inline simd::Floats exp2(simd::Floats x) {
#if defined(__AVX512F__)
  const simd::Floats least = simd::broadcast(-160.0f);  // 2^-160 rounds to 0
#else
  const simd::Floats least = simd::broadcast(-127.0f);  // its result has the exponent field of 0
#endif
  x = simd::max(least, x);
#if defined(__AVX512F__)
  const simd::Floats n = _mm512_maskz_roundscale_ps(0xffff, x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
  const simd::Floats shifted = x + 12582912.0f;  // 1.5·2^23: rounds to an integer, in the low bits
  const simd::Floats n = shifted - 12582912.0f;
#endif
  const simd::Floats f = x - n;
  const simd::Floats p = simd::polynomial(f, 1.535336188e-4f, 1.339887440e-3f, 9.618437358e-3f, 5.550332471e-2f,
                                          2.402264791e-1f, 6.931472029e-1f, 1.0f);
#if defined(__AVX512F__)
  return _mm512_maskz_scalef_ps(0xffff, p, n);
#else
  const simd::Ints exponent = std::bit_cast<simd::Ints>(shifted) - std::bit_cast<std::int32_t>(12582912.0f) + 127;
  return p * std::bit_cast<simd::Floats>(exponent << 23);
#endif
}

/// exp2() for Units; for pairs of bf16 in fewer instructions, at their precision. The result for -∞ is 0.
template <typename Units>
[[nodiscard]] inline simd::Floats exp2_for(simd::Floats x) {
#if defined(__AVX512DQ__)
  if constexpr (Units::width > 1) {
    const simd::Floats f = _mm512_maskz_reduce_ps(0xffff, x, _MM_FROUND_TO_NEG_INF);  // x - ⌊x⌋
    const simd::Floats p = simd::polynomial(f, 1.865033719e-3f, 9.022697415e-3f, 5.579448357e-2f, 2.401666025e-1f,
                                            6.931510350e-1f, 1.0f);
    return _mm512_maskz_scalef_ps(0xffff, p, x);  // p · 2^⌊x⌋
  }
#endif
  return exp2(x);
}

/// Natural logarithm of positive normal numbers, with error at most 2e-7 relative plus 2e-7; infinity and NaN stay.
[[nodiscard]] inline simd::Floats log(simd::Floats x) {
  const auto bits = std::bit_cast<simd::Ints>(x);
  // x = m · 2^e with m in [√½, √2)
  const simd::Ints e = (bits - 0x3f3504f3) >> 23;
  const auto f = std::bit_cast<simd::Floats>(bits - (e << 23)) - 1.0f;
  const simd::Floats p = simd::log_tail(f);
  const simd::Floats square = f * f, n = __builtin_convertvector(e, simd::Floats);
  const simd::Floats value = (p * (f * square) + n * -2.12194440e-4f - 0.5f * square + f) + n * 0.693359375f;
  return bits >= 0x7f800000 ? x : value;
}

}  // namespace ranvier::models

// Vectors of floats in one register, and functions for CPU kernels. Storage types are widened on load and rounded on
// store. A partial load fills up with zeros, so that an element's result never depends on its position in an array.
//
//   simd::for_lanes(0, n, [&](std::size_t i, auto count) {
//     simd::store(y + i, simd::exp(simd::load(x + i, count)), count);
//   });
#pragma once

#include "runtime/base/dtype.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#if defined(__AVX__)
#include <immintrin.h>
#endif

namespace ranvier::models::simd {

#if defined(__AVX512F__)
inline constexpr std::size_t lanes = 16;
#elif defined(__AVX__)
inline constexpr std::size_t lanes = 8;
#else
inline constexpr std::size_t lanes = 4;
#endif

using Floats [[gnu::vector_size(lanes * 4)]] = float;
using Words [[gnu::vector_size(lanes * 4)]] = std::uint32_t;
using Ints [[gnu::vector_size(lanes * 4)]] = std::int32_t;
using Halves [[gnu::vector_size(lanes * 2)]] = std::uint16_t;

/// Adding 0 instead would turn -0 into 0.
[[nodiscard]] inline Floats broadcast(float value) { return value - Floats{}; }

/// a > b ? a : b, so the result is b if one of them is NaN. GCC 12 would use two instructions for that.
[[nodiscard]] inline Floats max(Floats a, Floats b) {
#if defined(__AVX512F__)
  return _mm512_maskz_max_ps(0xffff, a, b);
#elif defined(__AVX__)
  return _mm256_max_ps(a, b);
#else
  return a > b ? a : b;
#endif
}
/// a < b ? a : b
[[nodiscard]] inline Floats min(Floats a, Floats b) {
#if defined(__AVX512F__)
  return _mm512_maskz_min_ps(0xffff, a, b);
#elif defined(__AVX__)
  return _mm256_min_ps(a, b);
#else
  return a < b ? a : b;
#endif
}
/// |x|
[[nodiscard]] inline Floats abs(Floats x) { return std::bit_cast<Floats>(std::bit_cast<Words>(x) & 0x7fffffffu); }

// Conversions of whole registers --------------------------------------------------------------------------

[[nodiscard]] inline Floats widen_bf16(Halves bits) {
#if defined(__AVX512F__)  // GCC 12 makes four instructions of the conversion, and warns of the unmasked form
  const auto words = std::bit_cast<Words>(_mm512_maskz_cvtepu16_epi32(0xffff, std::bit_cast<__m256i>(bits)));
#else
  const Words words = __builtin_convertvector(bits, Words);
#endif
  return std::bit_cast<Floats>(words << 16);
}

/// Rounds to nearest even; NaN stays NaN. Subnormal numbers (below 1.2e-38) may become zero.
[[nodiscard]] inline Halves narrow_bf16(Floats value) {
#if defined(__AVX512BF16__)
  return std::bit_cast<Halves>(_mm512_cvtneps_pbh(value));
#else
  const auto bits = std::bit_cast<Words>(value);
  const Words rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const Words nan = (bits >> 16) | 0x40u;
  return __builtin_convertvector((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded, Halves);
#endif
}

[[nodiscard]] inline Floats widen_f16(Halves bits) {
#if defined(__AVX512F__)
  return _mm512_maskz_cvtph_ps(0xffff, std::bit_cast<__m256i>(bits));
#elif defined(__F16C__)
  return _mm256_cvtph_ps(std::bit_cast<__m128i>(bits));
#else
  Floats value;
  for (std::size_t i = 0; i < lanes; ++i) value[i] = runtime::to_float(runtime::F16{bits[i]});
  return value;
#endif
}

/// Rounds to nearest even; NaN stays NaN.
[[nodiscard]] inline Halves narrow_f16(Floats value) {
#if defined(__AVX512F__)
  return std::bit_cast<Halves>(_mm512_maskz_cvtps_ph(0xffff, value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(__F16C__)
  return std::bit_cast<Halves>(_mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
#else
  Halves bits;
  for (std::size_t i = 0; i < lanes; ++i) bits[i] = runtime::from_float<runtime::F16>(value[i]).bits;
  return bits;
#endif
}

// Loads and stores of `lanes` elements, or the first `count` <= lanes, at any address -----------------------

template <typename Vector>
[[nodiscard]] inline Vector load_bits(const void* from) {
  Vector value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

[[nodiscard]] inline Floats load(const float* from) { return load_bits<Floats>(from); }
[[nodiscard]] inline Floats load(const runtime::Bf16* from) { return widen_bf16(load_bits<Halves>(from)); }
[[nodiscard]] inline Floats load(const runtime::F16* from) { return widen_f16(load_bits<Halves>(from)); }

inline void store(float* to, Floats value) { std::memcpy(to, &value, sizeof(value)); }
inline void store(runtime::Bf16* to, Floats value) {
  const Halves bits = narrow_bf16(value);
  std::memcpy(static_cast<void*>(to), &bits, sizeof(bits));
}
inline void store(runtime::F16* to, Floats value) {
  const Halves bits = narrow_f16(value);
  std::memcpy(static_cast<void*>(to), &bits, sizeof(bits));
}

template <typename T>
[[nodiscard]] inline Floats load(const T* from, std::size_t count) {
  if (count >= lanes) return load(from);
  T part[lanes] = {};
  std::memcpy(static_cast<void*>(part), from, count * sizeof(T));
  return load(part);
}

template <typename T>
inline void store(T* to, Floats value, std::size_t count) {
  if (count >= lanes) return store(to, value);
  T part[lanes];
  store(part, value);
  std::memcpy(static_cast<void*>(to), part, count * sizeof(T));
}

/// Calls f(i, count) for i = begin, begin + lanes, …; count is the constant `lanes`, except at the end.
template <typename F>
inline void for_lanes(std::size_t begin, std::size_t end, F&& f) {
  std::size_t i = begin;
  for (; i + lanes <= end; i += lanes) f(i, std::integral_constant<std::size_t, lanes>());
  if (i < end) f(i, end - i);
}

/// to[n] = from[n], converted through float.
template <typename To, typename From>
inline void convert(To* to, const From* from, std::size_t n) {
  for_lanes(0, n, [&](std::size_t i, auto count) { store(to + i, load(from + i, count), count); });
}

// Functions -----------------------------------------------------------------------------------------------

namespace detail {
/// Lane i of the result is lane i ^ distance of the argument.
template <std::size_t distance, std::size_t... lane>
[[nodiscard]] inline Floats exchange(Floats value, std::index_sequence<lane...>) {
  return __builtin_shufflevector(value, value, (lane ^ distance)...);
}

template <std::size_t distance = lanes / 2, typename Combine>
[[nodiscard]] inline Floats fold(Floats value, Combine combine) {
  if constexpr (distance == 0) {
    return value;
  } else {
    return fold<distance / 2>(combine(value, exchange<distance>(value, std::make_index_sequence<lanes>())),
                              combine);
  }
}
}  // namespace detail

/// Sum of the lanes, pairwise, always in the same order.
[[nodiscard]] inline float sum(Floats value) {
  return detail::fold(value, [](Floats a, Floats b) { return a + b; })[0];
}

/// Σ f(x[c]) over a row's floats, in four independent partial sums.
template <typename T, typename F>
[[nodiscard]] inline float sum_over(const T* x, std::size_t channels, F f) {
  constexpr std::size_t parts = 4;
  Floats total[parts] = {};
  std::size_t c = 0;
  for (; c + parts * lanes <= channels; c += parts * lanes) {
    for (std::size_t part = 0; part < parts; ++part) total[part] += f(load(x + c + part * lanes));
  }
  for (; c + lanes <= channels; c += lanes) total[0] += f(load(x + c));
  float result = sum((total[0] + total[1]) + (total[2] + total[3]));
  for (; c < channels; ++c) result += f(broadcast(runtime::to_float(x[c])))[0];
  return result;
}

/// The greatest lane.
[[nodiscard]] inline float max(Floats value) {
  return detail::fold(value, [](Floats a, Floats b) { return max(a, b); })[0];
}

namespace detail {
/// x = n + r with an integer n and |r| <= 1/2, for |x| < 2^22.
struct Rounded {
  Floats n;
#if !defined(__AVX512F__)
  Ints integer;
#endif
};

[[nodiscard]] inline Rounded round(Floats x) {
#if defined(__AVX512F__)
  return {_mm512_maskz_roundscale_ps(0xffff, x, _MM_FROUND_TO_NEAREST_INT)};
#else  // adding 1.5·2^23 rounds to an integer, which the low bits then hold
  const Floats shifted = x + 12582912.0f;
  return {shifted - 12582912.0f, std::bit_cast<Ints>(shifted) - std::bit_cast<std::int32_t>(12582912.0f)};
#endif
}

/// p · 2^n
[[nodiscard]] inline Floats scale(Floats p, const Rounded& n) {
#if defined(__AVX512F__)
  return _mm512_maskz_scalef_ps(0xffff, p, n.n);
#else  // 2^n as 2^(n-1) · 2, because n may be 128
  return (p * std::bit_cast<Floats>((n.integer + 126) << 23)) * 2.0f;
#endif
}
}  // namespace detail

/// Polynomial of x, its highest coefficient first, by Horner's rule.
template <typename... Rest>
[[nodiscard]] inline Floats polynomial(Floats x, float first, Rest... rest) {
  Floats p = broadcast(first);
  ((p = p * x + rest), ...);
  return p;
}

/// (ln(1 + x) - x + x²/2) / x³ for √½ <= 1 + x < √2 (Cephes' logf).
[[nodiscard]] inline Floats log_tail(Floats x) {
  return polynomial(x, 7.0376836292e-2f, -1.1514610310e-1f, 1.1676998740e-1f, -1.2420140846e-1f, 1.4249322787e-1f,
                    -1.6668057665e-1f, 2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f);
}

/// e^x within 2 units in the last place. Below -86.9 the result is 0, above 88.7 infinity; NaN stays NaN.
[[nodiscard]] inline Floats exp(Floats x) {
#if defined(__AVX512F__)
  const Floats clamped = _mm512_maskz_min_ps(0xffff, broadcast(89.0f), x);  // NaN is the second's
#else
  const Floats clamped = x > 89.0f ? broadcast(89.0f) : x;
#endif
  // x = n·ln 2 + r with |r| <= ln 2 / 2.
  const detail::Rounded rounded = detail::round(clamped * 1.44269504f);
  const Floats r = (clamped - rounded.n * 0.693359375f) - rounded.n * -2.12194440e-4f;
  // The polynomial in pairs: half as many steps wait for each other as in Horner's order.
  const Floats square = r * r;
  const Floats high = 1.9875691500e-4f * r + 1.3981999507e-3f;
  const Floats middle = 8.3334519073e-3f * r + 4.1665795894e-2f;
  const Floats low = 1.6666665459e-1f * r + 5.0000001201e-1f;
  const Floats p = ((high * square + middle) * square + low) * square + r + 1.0f;
  return x < -86.9f ? Floats{} : detail::scale(p, rounded);
}

/// 2^x within 2 units in the last place, for -125 <= x <= 125. Cheaper than exp.
[[nodiscard]] inline Floats exp2(Floats x) {
  const detail::Rounded rounded = detail::round(x);
  const Floats r = x - rounded.n;
  const Floats square = r * r;
  const Floats high = 1.535336188319500e-4f * r + 1.339887440266574e-3f;
  const Floats middle = 9.618437357674640e-3f * r + 5.550332471162809e-2f;
  const Floats low = 2.402264791363012e-1f * r + 6.931472028550421e-1f;
  return detail::scale(((high * square + middle) * square + low) * r + 1.0f, rounded);
}

/// 2^x with relative error at most 4e-6 for -125 <= x <= 125, less than 2^-124 below; NaN stays NaN. For results that
/// are rounded to half precision. With AVX-512 the result for -∞ is 0.
[[nodiscard]] inline Floats exp2_for_half(Floats x) {
#if defined(__AVX512DQ__)
  const Floats f = _mm512_maskz_reduce_ps(0xffff, x, _MM_FROUND_TO_NEG_INF);  // x - ⌊x⌋, of -∞ 0
  const Floats p = polynomial(f, 1.342515442e-02f, 5.224537404e-02f, 2.412785561e-01f, 6.930451545e-01f, 1.0f);
  return _mm512_maskz_scalef_ps(0xffff, p, x);  // p · 2^⌊x⌋
#else
  x = max(broadcast(-125.0f), x);
  const detail::Rounded rounded = detail::round(x);
  const Floats r = x - rounded.n;
  const Floats high = 9.78291255402253e-3f * r + 5.597688362864e-2f;
  const Floats low = 2.4020711078859e-1f * r + 6.9311360440359e-1f;
  return detail::scale((high * (r * r) + low) * r + 1.0f, rounded);
#endif
}

/// 1/x with relative error at most 3e-7 for 1 <= x <= 2^126. For results that are rounded to half precision.
[[nodiscard]] inline Floats reciprocal_for_half(Floats x) {
#if defined(__AVX512F__)
  const Floats near = _mm512_maskz_rcp14_ps(0xffff, x);
  return near * (2.0f - x * near);
#else
  return 1.0f / x;
#endif
}

/// 2^x for results stored as T; clamps x to the valid range.
template <typename T>
[[nodiscard]] inline Floats bounded_exp2(Floats x) {
  const Floats bound = broadcast(125.0f);
  const Floats bounded = min(x, bound);
  return std::is_same_v<T, float> ? exp2(max(bounded, -bound)) : exp2_for_half(bounded);
}

/// 1/x for x >= 1 and results stored as T.
template <typename T>
[[nodiscard]] inline Floats reciprocal(Floats x) {
  return std::is_same_v<T, float> ? 1.0f / x : reciprocal_for_half(x);
}

struct SineCosine {
  Floats sine, cosine;
};

namespace detail {
/// Sine and cosine of quadrant · π/2 + angle, for |angle| <= π/4.
[[nodiscard]] inline SineCosine sine_cosine(Words quadrant, Floats angle) {
  const Floats square = angle * angle;
  Floats s = polynomial(square, -1.9515295891e-4f, 8.3321608736e-3f, -1.6666654611e-1f);
  s = s * square * angle + angle;
  Floats c = polynomial(square, 2.443315711809948e-5f, -1.388731625493765e-3f, 4.166664568298827e-2f);
  c = c * square * square - 0.5f * square + 1.0f;
  const Floats sine = (quadrant & 1u) != 0 ? c : s;
  const Floats cosine = (quadrant & 1u) != 0 ? s : c;
  return {(quadrant & 2u) != 0 ? -sine : sine, ((quadrant + 1u) & 2u) != 0 ? -cosine : cosine};
}
}  // namespace detail

/// Sine and cosine of 2π·turns, for 0 <= turns < 1.
[[nodiscard]] inline SineCosine sine_cosine_of_turns(Floats turns) {
  // turns = quadrant/4 + r with |r| <= 1/8.
  const Floats shifted = turns * 4.0f + 12582912.0f;
  return detail::sine_cosine(std::bit_cast<Words>(shifted),
                             (turns - (shifted - 12582912.0f) * 0.25f) * 6.28318530718f);
}

/// Sine and cosine of an angle of up to 2^31 radians, with error at most 2e-7. The quadrant is computed in double.
[[nodiscard]] inline SineCosine sine_cosine(Floats angle) {
  using Doubles [[gnu::vector_size(lanes * 8)]] = double;
  using Longs [[gnu::vector_size(lanes * 8)]] = std::uint64_t;
  const Doubles quarters = __builtin_convertvector(angle, Doubles) * 0.63661977236758134;
  const Doubles shifted = quarters + 6755399441055744.0;  // rounds to an integer, which the low bits then hold
  const Floats rest = __builtin_convertvector(quarters - (shifted - 6755399441055744.0), Floats);
  return detail::sine_cosine(__builtin_convertvector(std::bit_cast<Longs>(shifted), Words), rest * 1.57079632679f);
}

}  // namespace ranvier::models::simd

#include "runtime/kernels/elementwise_cpu.hpp"

#include <array>
#include <cstring>

#if defined(__F16C__) && defined(__AVX__)
#include <immintrin.h>
#endif

namespace ranvier::runtime::cpu {

void to_floats(float* __restrict to, const Bf16* __restrict from, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) to[i] = to_float(from[i]);
}

void from_floats(Bf16* __restrict to, const float* __restrict from, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) to[i] = from_float<Bf16>(from[i]);
}

void to_floats(float* to, const F16* from, std::size_t n) {
  std::size_t i = 0;
#if defined(__F16C__) && defined(__AVX__)
  for (; i + 8 <= n; i += 8) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(bits));
  }
#endif
  for (; i < n; ++i) to[i] = to_float(from[i]);
}

void from_floats(F16* to, const float* from, std::size_t n) {
  std::size_t i = 0;
#if defined(__F16C__) && defined(__AVX__)
  for (; i + 8 <= n; i += 8) {
    const __m128i bits = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), bits);
  }
#endif
  for (; i < n; ++i) to[i] = from_float<F16>(from[i]);
}

void to_floats(float* to, const float* from, std::size_t n) {
  if (n != 0) std::memmove(to, from, n * sizeof(float));
}

void from_floats(float* to, const float* from, std::size_t n) { to_floats(to, from, n); }

void scale(float* to, float factor, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) to[i] *= factor;
}

void add(float* to, const float* from, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) to[i] += from[i];
}

void add(double* to, const double* from, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) to[i] += from[i];
}

void add(Bf16* to, const Bf16* from, std::size_t n) {
#pragma GCC ivdep  // if the arrays are identical, each element is read before it is written
  for (std::size_t i = 0; i < n; ++i) to[i] = from_float<Bf16>(to_float(to[i]) + to_float(from[i]));
}

void add(F16* to, const F16* from, std::size_t n) {
  std::size_t i = 0;
#if defined(__F16C__) && defined(__AVX__)
  for (; i + 8 <= n; i += 8) {
    const __m256 a = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(to + i)));
    const __m256 b = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
    const __m128i bits = _mm256_cvtps_ph(_mm256_add_ps(a, b), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), bits);
  }
#endif
  for (; i < n; ++i) to[i] = from_float<F16>(to_float(to[i]) + to_float(from[i]));
}

float sum_of_squares(const float* from, std::size_t n) {
  constexpr std::size_t lanes = 64;
  std::array<float, lanes> sums{};
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes)
    for (std::size_t lane = 0; lane < lanes; ++lane) sums[lane] += from[i + lane] * from[i + lane];
  for (std::size_t lane = 0; i + lane < n; ++lane) sums[lane] += from[i + lane] * from[i + lane];
  for (std::size_t half = lanes / 2; half != 0; half /= 2)
    for (std::size_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  return sums[0];
}

}  // namespace ranvier::runtime::cpu

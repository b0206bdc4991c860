// Philox for a vector of consecutive counters: the same numbers as runtime::philox.
#pragma once

#include "models/ops/vector_math.hpp"
#include "runtime/base/philox.hpp"

#include <array>

namespace ranvier::models::simd {

using WideWords [[gnu::vector_size(lanes * 4)]] = std::uint64_t;

namespace detail {
/// 64-bit products of the even lanes with `factor`.
[[nodiscard]] inline WideWords multiply_even(Words a, std::uint32_t factor) {
#if defined(__AVX512F__)
  return std::bit_cast<WideWords>(
      _mm512_maskz_mul_epu32(0xff, std::bit_cast<__m512i>(a), std::bit_cast<__m512i>(Words{} + factor)));
#elif defined(__AVX2__)
  return std::bit_cast<WideWords>(
      _mm256_mul_epu32(std::bit_cast<__m256i>(a), std::bit_cast<__m256i>(Words{} + factor)));
#else
  return (std::bit_cast<WideWords>(a) & 0xffffffffu) * factor;
#endif
}

struct Product {
  Words high;
  Words low;
};

[[nodiscard]] inline Product multiply(Words a, std::uint32_t factor) {
  const WideWords even = multiply_even(a, factor);
  const WideWords odd = multiply_even(std::bit_cast<Words>(std::bit_cast<WideWords>(a) >> 32), factor);
  constexpr std::uint64_t upper = 0xffffffff00000000u;
  return {std::bit_cast<Words>((even >> 32) | (odd & upper)), std::bit_cast<Words>((even & ~upper) | (odd << 32))};
}

/// a0 b0 a1 b1 … from the lower or upper halves of a and b.
template <bool upper, std::size_t... lane>
[[nodiscard]] inline Words interleave(Words a, Words b, std::index_sequence<lane...>) {
  return __builtin_shufflevector(a, b, (lane / 2 + (upper ? lanes / 2 : 0) + (lane % 2) * lanes)...);
}
template <bool upper>
[[nodiscard]] inline Words interleave(Words a, Words b) {
  return interleave<upper>(a, b, std::make_index_sequence<lanes>());
}
}  // namespace detail

/// Words of counters {first + lane, c1, c2, c3}: element w has word w of every counter. `first + lane` is a 64-bit
/// number in the counter's first two words.
[[nodiscard]] inline std::array<Words, 4> philox(runtime::PhiloxKey key, std::uint64_t first, std::uint32_t c2,
                                                 std::uint32_t c3) {
  Words c[4] = {};
  for (std::uint32_t i = 0; i < lanes; ++i) c[0][i] = i;
  c[0] += static_cast<std::uint32_t>(first);
  const Words carry = c[0] < static_cast<std::uint32_t>(first) ? Words{} + 1u : Words{};
  c[1] = carry + static_cast<std::uint32_t>(first >> 32);
  c[2] += c2;
  c[3] += c3;
  for (int round = 0; round < runtime::philox_rounds; ++round) {
    const detail::Product product0 = detail::multiply(c[0], runtime::philox_multiplier0);
    const detail::Product product1 = detail::multiply(c[2], runtime::philox_multiplier1);
    c[0] = product1.high ^ c[1] ^ key.low;
    c[1] = product1.low;
    c[2] = product0.high ^ c[3] ^ key.high;
    c[3] = product0.low;
    key = runtime::next_key(key);
  }
  return {c[0], c[1], c[2], c[3]};
}

/// The same words counter by counter: words 0 … 3 of the first counter, then of the second, …
[[nodiscard]] inline std::array<Words, 4> in_counter_order(const std::array<Words, 4>& words) {
  using detail::interleave;
  const Words even_lower = interleave<false>(words[0], words[2]), even_upper = interleave<true>(words[0], words[2]);
  const Words odd_lower = interleave<false>(words[1], words[3]), odd_upper = interleave<true>(words[1], words[3]);
  return {interleave<false>(even_lower, odd_lower), interleave<true>(even_lower, odd_lower),
          interleave<false>(even_upper, odd_upper), interleave<true>(even_upper, odd_upper)};
}

/// Same as runtime::uniform, per lane.
[[nodiscard]] inline Floats uniform(Words bits) {
  return __builtin_convertvector(std::bit_cast<Ints>(bits >> 8), Floats) * 0x1p-24f;
}

}  // namespace ranvier::models::simd

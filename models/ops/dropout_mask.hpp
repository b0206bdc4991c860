// Dropout mask of a block of attention weights, as bits.
#pragma once

#include "models/ops/dropout.hpp"
#include "models/ops/vector_philox.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace ranvier::models {

/// Mask for one head of one sample. Weight (i, j) is element (h·T + i)·T + j of the sample.
class DropoutMask {
 public:
  static constexpr std::size_t block = 64;

  /// `memory`: `block` words.
  DropoutMask(const Dropout& dropout, std::int64_t b, std::size_t head, std::size_t positions,
              std::uint64_t* memory)
      : key_(dropout.key),
        sample_(static_cast<std::uint64_t>(dropout.first_sample + b)),
        threshold_(static_cast<std::uint32_t>(std::ceil(dropout.rate * 0x1p24f))),
        scale_(dropout.kept_scale()),
        head_(head),
        positions_(positions),
        rows_(memory) {}

  /// Draws the mask of queries i0 … i0+queries-1 and keys j0 … j0+block-1.
  void draw(std::size_t i0, std::size_t queries, std::size_t j0) {
    for (std::size_t i = 0; i < queries; ++i) {
      const std::uint64_t element = (head_ * positions_ + i0 + i) * positions_ + j0;
      const std::uint64_t bits = word(element / block), offset = element % block;
      rows_[i] = offset == 0 ? bits : bits >> offset | word(element / block + 1) << (block - offset);
    }
    std::fill(rows_ + queries, rows_ + block, 0);
    transpose_bits();
  }

  /// Applies the mask to key `row` and queries starting at `column`: multiplies by 1/(1 - rate), or stores zero.
  [[nodiscard]] simd::Floats apply(simd::Floats value, std::size_t row, std::size_t column) const {
    simd::Words bit{};
    for (std::uint32_t lane = 0; lane < simd::lanes; ++lane) bit[lane] = 1u << lane;
    const auto bits = simd::Words{} + static_cast<std::uint32_t>(rows_[row] >> column);
    return (bits & bit) != 0 ? value * scale_ : simd::Floats{};
  }

 private:
  /// Bits of elements 64·index … 64·index+63 of the sample.
  [[nodiscard]] std::uint64_t word(std::uint64_t index) const {
    std::uint64_t word = 0;
    for (std::size_t at = 0; at < block; at += 4 * simd::lanes) {
      const auto draws = simd::in_counter_order(simd::philox(key_, index * (block / 4) + at / 4,
                                                             static_cast<std::uint32_t>(sample_),
                                                             static_cast<std::uint32_t>(sample_ >> 32)));
      for (std::size_t part = 0; part < 4; ++part)
        word |= static_cast<std::uint64_t>(kept(draws[part])) << (at + part * simd::lanes);
    }
    return word;
  }

  /// uniform(bits) >= rate, as a bit per lane.
  [[nodiscard]] std::uint32_t kept(simd::Words bits) const {
#if defined(__AVX512F__)
    return _mm512_cmpge_epu32_mask(std::bit_cast<__m512i>(bits >> 8),
                                   std::bit_cast<__m512i>(simd::Words{} + threshold_));
#else
    std::uint32_t mask = 0;
    for (std::uint32_t lane = 0; lane < simd::lanes; ++lane)
      mask |= ((bits[lane] >> 8) >= threshold_ ? 1u : 0u) << lane;
    return mask;
#endif
  }

  /// Transposes the bits: row i, bit j becomes row j, bit i, by exchanging halves of halves (Hacker's Delight §7-3).
  void transpose_bits() {
    std::uint64_t mask = 0x00000000ffffffffu;
    for (std::size_t half = block / 2; half != 0; half /= 2, mask ^= mask << half) {
      for (std::size_t row = 0; row < block; row = (row + half + 1) & ~half) {
        const std::uint64_t exchanged = (rows_[row] >> half ^ rows_[row + half]) & mask;
        rows_[row] ^= exchanged << half;
        rows_[row + half] ^= exchanged;
      }
    }
  }

  runtime::PhiloxKey key_;
  std::uint64_t sample_;
  std::uint32_t threshold_;
  float scale_;
  std::size_t head_, positions_;
  std::uint64_t* rows_;  ///< after draw(): per key, a bit per query
};

}  // namespace ranvier::models

// Multiplication of small matrices in registers, for attention, and of large ones without AVX-512. Left factors are
// loaded one at a time from any address (row stride and step); columns are vectors.
//
// Factors have units of 32 bits: a float, or a pair of bf16 neighbours along the sum. One instruction multiplies a pair
// and adds to a float.
#pragma once

#include "models/ops/vector_math.hpp"

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ranvier::models::tile {

using simd::Floats;
using simd::lanes;

/// For units that need no register configuration.
struct NoRegisters {};

/// Units of one float.
struct FloatUnits {
  using Unit = float;
  using Registers = NoRegisters;
  static constexpr std::size_t width = 1;
  static constexpr std::size_t stair = 16;  ///< attention's diagonal is divided into squares of this size

  static Floats spread(Unit unit) { return simd::broadcast(unit); }
  static Floats multiply_add(Floats a, Floats b, Floats sum) { return a * b + sum; }
};

#if defined(__AVX512BF16__)
struct Bf16Units {
  using Unit = std::uint32_t;
  using Registers = NoRegisters;
  static constexpr std::size_t width = 2;
  static constexpr std::size_t stair = 16;

  static Floats spread(Unit unit) { return std::bit_cast<Floats>(simd::Words{} + unit); }
  static Floats multiply_add(Floats a, Floats b, Floats sum) {
    return _mm512_dpbf16_ps(sum, std::bit_cast<__m512bh>(a), std::bit_cast<__m512bh>(b));
  }

  /// Combines both vectors lane by lane into units, `first` in the lower half.
  static Floats pair_up(Floats first, Floats second) {
    // clang-format off
    alignas(64) static constexpr std::uint16_t order[32] = {
        0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23,
        8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    // clang-format on
    const auto both = std::bit_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first));
    return std::bit_cast<Floats>(_mm512_permutexvar_epi16(_mm512_load_si512(order), both));
  }
};
#endif

/// Left operand: element (row, k) is data[row · row_stride + k · step].
template <typename Unit>
struct Left {
  const Unit* data = nullptr;
  std::size_t row_stride = 0;
  std::size_t step = 0;
};

/// Right operand: units of row k start at data + k · stride.
template <typename Unit>
struct Right {
  const Unit* data = nullptr;
  std::size_t stride = 0;
};

// Enough sums to hide the latency of a multiply-add, with registers left for operands: 16 of 32 registers, or 12 of 16.
// Remaining rows use lower tiles.
inline constexpr std::size_t tile_rows = lanes == 16 ? 8 : 6;
inline constexpr std::size_t tile_vectors = 2;

/// Sums of a tile, of which `rows` rows are used.
template <std::size_t vectors>
using Sums = Floats[tile_rows][vectors];

/// Not inlined: next to the variables of `finish`, its loop would have no registers left for addresses.
template <typename Units, std::size_t rows, std::size_t vectors, typename Finish>
[[gnu::noinline]] void one_tile(std::size_t row, std::size_t column, std::size_t n,
                                const Left<typename Units::Unit>& a, const Right<typename Units::Unit>& b,
                                const Finish& finish) {
  Sums<vectors> sums = {};
  const auto* left = a.data + row * a.row_stride;
  const auto* right = b.data + column;
#pragma GCC unroll(lanes == 16 ? 1 : 4)
  for (std::size_t k = 0; k < n; ++k) {
    Floats factors[vectors];
#pragma GCC unroll 8
    for (std::size_t v = 0; v < vectors; ++v) factors[v] = simd::load_bits<Floats>(right + v * lanes);
#pragma GCC unroll 8
    for (std::size_t r = 0; r < rows; ++r) {
      const Floats factor = Units::spread(left[r * a.row_stride]);
#pragma GCC unroll 8
      for (std::size_t v = 0; v < vectors; ++v) sums[r][v] = Units::multiply_add(factor, factors[v], sums[r][v]);
    }
    left += a.step;
    right += b.stride;
  }
  finish.template operator()<rows, vectors>(row, column, sums);
}

/// All rows of `vectors` vectors of columns: tiles of `height` rows, then lower ones for the remaining rows.
template <typename Units, std::size_t vectors, std::size_t height = tile_rows, typename Finish>
inline void tile_column(std::size_t row, std::size_t rows, std::size_t column, std::size_t n,
                        const Left<typename Units::Unit>& a, const Right<typename Units::Unit>& b, Finish finish) {
  for (; row + height <= rows; row += height) one_tile<Units, height, vectors>(row, column, n, a, b, finish);
  if constexpr (height > 1) {
    if (row < rows) tile_column<Units, vectors, height - 1>(row, rows, column, n, a, b, finish);
  }
}

/// a[rows, n] · b[n, columns], tile by tile: calls finish.operator()<rows, vectors>(row, column, sums) for each.
/// `columns` is a multiple of the vectors' lanes; `n` counts units.
template <typename Units, typename Finish>
  requires std::same_as<typename Units::Registers, NoRegisters>
void product(std::size_t rows, std::size_t columns, std::size_t n, const Left<typename Units::Unit>& a,
             const Right<typename Units::Unit>& b, Finish finish) {
  std::size_t column = 0;
  for (; column + tile_vectors * lanes <= columns; column += tile_vectors * lanes)
    tile_column<Units, tile_vectors>(0, rows, column, n, a, b, finish);
  if (column < columns) tile_column<Units, 1>(0, rows, column, n, a, b, finish);
}

// Functions for `finish` ---------------------------------------------------------------------------------

/// Replaces each vector of c by combine(vector's address, first column, sums).
template <typename Combine>
struct Into {
  float* c;
  std::size_t stride;
  Combine combine;

  template <std::size_t rows, std::size_t vectors>
  void operator()(std::size_t row, std::size_t column, const Sums<vectors>& sums) const {
#pragma GCC unroll 8
    for (std::size_t r = 0; r < rows; ++r)
#pragma GCC unroll 8
      for (std::size_t v = 0; v < vectors; ++v) {
        float* place = c + (row + r) * stride + column + v * lanes;
        simd::store(place, combine(place, column + v * lanes, sums[r][v]));
      }
  }
};

/// c = sums.
inline auto put(float* c, std::size_t stride) {
  return Into{c, stride, [](const float*, std::size_t, Floats sums) { return sums; }};
}

/// c += sums.
inline auto add(float* c, std::size_t stride) {
  return Into{c, stride, [](const float* place, std::size_t, Floats sums) { return simd::load(place) + sums; }};
}

/// c = c · (factor of the column) + sums.
inline auto scale_add(float* c, std::size_t stride, const float* factor) {
  return Into{c, stride, [factor](const float* place, std::size_t column, Floats sums) {
                return simd::load(place) * simd::load(factor + column) + sums;
              }};
}

}  // namespace ranvier::models::tile

// Multiplications of vector_tile.hpp with AMX (amx.hpp).
//
// Operands have the same layout as for vectors of pairs. So vectors compute the remainder: rows beyond a multiple of
// 16, and sums whose length is not a multiple of 32 numbers.
#pragma once

#include "models/ops/amx.hpp"
#include "models/ops/vector_tile.hpp"

#if RANVIER_AMX

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace ranvier::models::tile {

/// Pairs of bf16 for AMX.
struct AmxUnits : Bf16Units {
  using Registers = amx::Registers;
  static constexpr std::size_t stair = 32;  // fewer than 16 pairs are computed with vectors
};

/// Multiplies `tall` × `wide` registers (1 or 2 each); `finish` receives the sums as vectors.
template <std::size_t tall, std::size_t wide, typename Finish>
[[gnu::noinline]] void amx_tile(std::size_t row, std::size_t column, std::size_t n, const Left<std::uint32_t>& a,
                                const Right<std::uint32_t>& b, const Finish& finish) {
  const std::uint32_t* left = a.data + row * a.row_stride;
  const std::uint32_t* right = b.data + column;
  const std::size_t left_row = a.row_stride * sizeof(*left), right_row = b.stride * sizeof(*right);
  const std::size_t below = amx::rows * a.row_stride;

  amx::fence();
  _tile_zero(0);
  if constexpr (wide > 1) _tile_zero(1);
  if constexpr (tall > 1) _tile_zero(2);
  if constexpr (tall > 1 && wide > 1) _tile_zero(3);
  for (std::size_t k = 0; k < n; k += amx::pairs) {
    _tile_loadd(6, right, right_row);
    _tile_loadd(4, left, left_row);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (wide > 1) {
      _tile_loadd(7, right + lanes, right_row);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (tall > 1) {
      _tile_loadd(5, left + below, left_row);
      _tile_dpbf16ps(2, 5, 6);
    }
    if constexpr (tall > 1 && wide > 1) _tile_dpbf16ps(3, 5, 7);
    left += amx::pairs;
    right += amx::pairs * b.stride;
  }
  constexpr std::size_t stride = wide * lanes;
  alignas(64) float sums[tall * amx::rows * stride];
  _tile_stored(0, sums, stride * sizeof(float));
  if constexpr (wide > 1) _tile_stored(1, sums + lanes, stride * sizeof(float));
  if constexpr (tall > 1) _tile_stored(2, sums + amx::rows * stride, stride * sizeof(float));
  if constexpr (tall > 1 && wide > 1) _tile_stored(3, sums + amx::rows * stride + lanes, stride * sizeof(float));
  amx::fence();

  for (std::size_t r = 0; r < tall * amx::rows; r += tile_rows) {
    Sums<wide> part;
#pragma GCC unroll 8
    for (std::size_t i = 0; i < tile_rows; ++i)
#pragma GCC unroll 8
      for (std::size_t v = 0; v < wide; ++v) part[i][v] = simd::load(sums + (r + i) * stride + v * lanes);
    finish.template operator()<tile_rows, wide>(row + r, column, part);
  }
}

template <std::size_t wide, typename Finish>
inline void amx_column(std::size_t rows, std::size_t column, std::size_t n, const Left<std::uint32_t>& a,
                       const Right<std::uint32_t>& b, const Finish& finish) {
  const std::size_t in_registers = a.step == 1 && n % amx::pairs == 0 ? rows / amx::rows * amx::rows : 0;
  std::size_t row = 0;
  for (; row + 2 * amx::rows <= in_registers; row += 2 * amx::rows) amx_tile<2, wide>(row, column, n, a, b, finish);
  for (; row + amx::rows <= in_registers; row += amx::rows) amx_tile<1, wide>(row, column, n, a, b, finish);
  if (row < rows) tile_column<Bf16Units, wide>(row, rows, column, n, a, b, finish);
}

/// Same contract as product() for vectors.
template <typename Units, typename Finish>
  requires std::same_as<Units, AmxUnits>
void product(std::size_t rows, std::size_t columns, std::size_t n, const Left<typename Units::Unit>& a,
             const Right<typename Units::Unit>& b, Finish finish) {
  std::size_t column = 0;
  for (; column + 2 * lanes <= columns; column += 2 * lanes) amx_column<2>(rows, column, n, a, b, finish);
  if (column < columns) amx_column<1>(rows, column, n, a, b, finish);
}

}  // namespace ranvier::models::tile
#endif

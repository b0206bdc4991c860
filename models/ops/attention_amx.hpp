// The products of attention_tile.hpp in the processor's matrix registers (Intel's AMX): pairs of bf16, 16 × 16 sums to
// an instruction, some eight times as many in a cycle as in vectors.
//
// Operands lie as they do for pairs in vectors, so that what a matrix register is too large for is done in those: the
// rows that are left of 16, and sums over other than multiples of 32 numbers.
#pragma once

#include "models/ops/attention_tile.hpp"

#if defined(__AMX_BF16__) && defined(__AVX512BF16__)

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace ranvier::models::tile {

/// Whether the operating system lets this process use the registers. Asks it once.
[[nodiscard]] bool amx_available();

/// The thread's matrix registers while it multiplies: eight of 16 rows of 64 bytes. oneDNN lays them out anew whenever
/// it needs them.
class AmxRegisters {
 public:
  AmxRegisters() {
    struct alignas(64) Layout {
      std::uint8_t palette = 1, first_row = 0, reserved[14] = {};
      std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    };
    static constexpr Layout layout;
    _tile_loadconfig(&layout);
  }
  ~AmxRegisters() { _tile_release(); }
  AmxRegisters(const AmxRegisters&) = delete;
  AmxRegisters& operator=(const AmxRegisters&) = delete;
};

struct AmxUnits : Bf16Units {
  using Registers = AmxRegisters;
  static constexpr std::size_t stair = 32;  // less than 16 pairs are done in vectors
};

inline constexpr std::size_t amx_rows = 16, amx_units = 16;

/// `tall` by `wide` registers of sums (1 or 2 each), which `finish` gets as vectors.
template <std::size_t tall, std::size_t wide, typename Finish>
[[gnu::noinline]] void amx_tile(std::size_t row, std::size_t column, std::size_t n, const Left<std::uint32_t>& a,
                                const Right<std::uint32_t>& b, const Finish& finish) {
  const std::uint32_t* left = a.data + row * a.row_stride;
  const std::uint32_t* right = b.data + column;
  const std::size_t left_row = a.row_stride * sizeof(*left), right_row = b.stride * sizeof(*right);
  const std::size_t below = amx_rows * a.row_stride;

  // The compiler does not know that these instructions read and write memory.
  asm volatile("" ::: "memory");
  _tile_zero(0);
  if constexpr (wide > 1) _tile_zero(1);
  if constexpr (tall > 1) _tile_zero(2);
  if constexpr (tall > 1 && wide > 1) _tile_zero(3);
  for (std::size_t k = 0; k < n; k += amx_units) {
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
    left += amx_units;
    right += amx_units * b.stride;
  }
  constexpr std::size_t stride = wide * lanes;
  alignas(64) float sums[tall * amx_rows * stride];
  _tile_stored(0, sums, stride * sizeof(float));
  if constexpr (wide > 1) _tile_stored(1, sums + lanes, stride * sizeof(float));
  if constexpr (tall > 1) _tile_stored(2, sums + amx_rows * stride, stride * sizeof(float));
  if constexpr (tall > 1 && wide > 1) _tile_stored(3, sums + amx_rows * stride + lanes, stride * sizeof(float));
  asm volatile("" ::: "memory");

  for (std::size_t r = 0; r < tall * amx_rows; r += tile_rows) {
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
  const std::size_t in_registers = a.step == 1 && n % amx_units == 0 ? rows / amx_rows * amx_rows : 0;
  std::size_t row = 0;
  for (; row + 2 * amx_rows <= in_registers; row += 2 * amx_rows) amx_tile<2, wide>(row, column, n, a, b, finish);
  for (; row + amx_rows <= in_registers; row += amx_rows) amx_tile<1, wide>(row, column, n, a, b, finish);
  if (row < rows) tile_column<Bf16Units, wide>(row, rows, column, n, a, b, finish);
}

/// As the one in vectors.
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

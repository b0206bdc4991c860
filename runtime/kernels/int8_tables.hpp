// Tables for int8_block.hpp: the map, and for rounding the index and the next threshold in each cell of [2^-23, 1]. A
// cell is the range of floats that agree in sign, exponent and the first bits of the mantissa; it contains at most one
// threshold. The compiler computes them, so that CPU and GPU have the same bits.
#pragma once

#include "runtime/kernels/int8_block.hpp"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace ranvier::runtime {

/// The table of i8 if `negative`, else of u8.
template <bool negative>
struct Int8Table {
  static constexpr int shift = negative ? 17 : 16;  ///< bits of the mantissa within a cell
  static constexpr std::uint32_t within = (1u << shift) - 1, smallest = (127u - 23u) << 23, largest = 127u << 23;
  static constexpr std::uint32_t cells = ((largest - smallest) >> shift) + 1;  ///< per sign

  std::array<float, 256> values{};
  /// (index << shift) plus a number that carries, or borrows if negative, behind the threshold.
  std::array<std::uint32_t, cells*(negative ? 2 : 1)> entries{};

  constexpr Int8Table() {
    fill_values();
    for (const bool minus : {false, true})
      if (negative || !minus) fill_entries(minus);
  }

  /// Bits of the absolute value; 0 for finite negative values of u8.
  [[nodiscard]] static constexpr std::uint32_t magnitude(std::uint32_t bits) {
    const std::uint32_t absolute = bits & 0x7fffffffu;
    if (negative) return absolute;
    // Masks instead of branches vectorize.
    const auto minus = static_cast<std::int32_t>(bits) >> 31;
    const auto finite = static_cast<std::int32_t>(absolute - 0x7f800000u) >> 31;
    return absolute & ~static_cast<std::uint32_t>(minus & finite);
  }
  [[nodiscard]] static constexpr std::uint32_t cell(std::uint32_t bits) {
    const std::uint32_t at = clamped(bits);
    return ((at - smallest) >> shift) + (negative && bits >> 31 != 0 ? cells : 0u);
  }
  /// Index of a value, whose bits are given, from the entry of its cell.
  [[nodiscard]] static constexpr std::uint32_t index(std::uint32_t entry, std::uint32_t bits) {
    const std::uint32_t low = clamped(bits) & within;
    if (negative) return (bits >> 31 != 0 ? entry - low : entry + low) >> shift;
    const std::uint32_t nearest = (entry + low) >> shift;
    return nearest | static_cast<std::uint32_t>(nearest == 0 && static_cast<std::int32_t>(bits) > 0);
  }

 private:
  /// Values below `smallest` are rounded to zero, as it is; after rounding of the factor, the largest one may exceed 1.
  [[nodiscard]] static constexpr std::uint32_t clamped(std::uint32_t bits) {
    const auto value = static_cast<std::int32_t>(negative ? bits & 0x7fffffffu : bits);
    const std::int32_t above = value < std::int32_t{smallest} ? std::int32_t{smallest} : value;
    return static_cast<std::uint32_t>(above < std::int32_t{largest} ? above : std::int32_t{largest});
  }

  /// bitsandbytes' create_dynamic_map(negative): the centres of 2^i parts of [0.1, 1] (2^(i+1) if not negative) times
  /// 10^(i-6), i = 0…6, as torch computes them in float; 0 and 1.
  constexpr void fill_values() {
    constexpr std::array<float, 7> powers = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1.0f};
    std::size_t above = negative ? 128 : 1;
    const std::size_t zero = above - 1;
    for (std::size_t i = 0; i < powers.size(); ++i) {
      const std::size_t parts = std::size_t{negative ? 1 : 2} << i;
      const float step = (1.0f - 0.1f) / static_cast<float>(parts);
      const auto boundary = [&](std::size_t k) {
        return k < (parts + 1) / 2 ? 0.1f + step * static_cast<float>(k)
                                   : 1.0f - step * static_cast<float>(parts - k);
      };
      for (std::size_t k = 0; k < parts; ++k, ++above) {
        values[above] = (boundary(k) + boundary(k + 1)) / 2.0f * powers[i];
        if (negative) values[2 * zero - above] = -values[above];
      }
    }
    values[255] = 1.0f;
    if (negative) values[0] = -1.0f;
  }

  constexpr void fill_entries(bool minus) {
    const std::uint32_t zero = negative ? 127 : 0;
    const std::uint32_t last = minus ? 0 : 255;
    std::uint32_t at = zero;  // index of the cell's smallest magnitude
    for (std::uint32_t cell = 0; cell < cells; ++cell) {
      const std::uint32_t first = smallest + (cell << shift);
      std::uint32_t threshold = first + within;  // last magnitude in the cell with index `at`
      std::uint32_t next = at;
      if (at != last) {
        next = minus ? at - 1 : at + 1;
        // Exact. A tie is rounded to the lower value, which has the larger magnitude if negative.
        const double middle = (double{values[at]} + double{values[next]}) / (minus ? -2 : 2);
        auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(middle));
        const double rounded = double{std::bit_cast<float>(bits)};
        if (rounded > middle || (minus && rounded == middle)) --bits;
        threshold = bits < threshold ? bits : threshold;
        if (bits >= first + within) next = at;
      }
      entries[cell + (minus ? cells : 0)] =
          minus ? (at << shift) + (threshold - first) : (at << shift) + (within - (threshold - first));
      at = next;
    }
  }
};

}  // namespace ranvier::runtime

// One head of the CPU's attention: addresses of its rows, and the units in which kernels read and write them. A unit is
// a float, or a pair of bf16 for vector or AMX instructions. Letters as in attention_workspace.hpp.
#pragma once

#include "models/ops/attention_amx.hpp"
#include "models/ops/attention_cpu.hpp"
#include "models/ops/vector_tile.hpp"
#include "models/ops/attention_workspace.hpp"
#include "models/ops/transpose.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace ranvier::models::blockwise {

using tile::FloatUnits;
using tile::Left;
using tile::Right;

/// Whether sums over positions need a channel's positions in adjacent elements, as AMX does.
template <typename Units>
inline constexpr bool lies_across = false;
#if RANVIER_AMX
template <>
inline constexpr bool lies_across<tile::AmxUnits> = true;
#endif

/// One head's queries, keys and values in units.
template <typename Units>
struct Head {
  using Unit = typename Units::Unit;

  const Unit* q = nullptr;  ///< [T, D units], row_stride units per position
  const Unit* k = nullptr;
  const Unit* v = nullptr;
  std::size_t row_stride = 0;
  const Unit* d_out = nullptr;
  std::size_t d_out_stride = 0;
  // The same with units along the positions:
  const Unit* k_pairs = nullptr;
  const Unit* v_pairs = nullptr;
  std::size_t pair_row = 0, pair_step = 0;  ///< units between channels, and between the units of a channel

  /// Channels as rows of k_pairs or v_pairs, starting at position j, which is even.
  [[nodiscard]] Left<Unit> across(const Unit* pairs, std::size_t j) const {
    return {pairs + j / Units::width * pair_step, pair_row, pair_step};
  }
};

/// to[n, D] = from[n, D], with `stride` elements per row of `from`.
template <typename E>
void widen_rows(float* to, const E* from, std::size_t stride, std::size_t n, std::size_t D) {
  for (std::size_t i = 0; i < n; ++i) simd::convert(to + i * D, from + i * stride, D);
}

/// to[n units, to_stride] from rows of `stride` elements. A unit combines neighbours along n. The last unit and columns
/// beyond D are filled with zeros.
template <typename Units, typename E>
void units_along_rows(typename Units::Unit* to, std::size_t to_stride, const E* from, std::size_t stride,
                      std::size_t n, std::size_t D) {
  for (std::size_t i = 0; i < n; i += Units::width) {
    auto* row = to + i / Units::width * to_stride;
    const auto* first = from + i * stride;
    if constexpr (Units::width == 1) {
      std::copy(first, first + D, row);
    } else if (i + 1 < n) {
      for (std::size_t d = 0; d < D; ++d) {
        row[d] = static_cast<std::uint32_t>(first[d].bits) | static_cast<std::uint32_t>(first[stride + d].bits)
                                                                 << 16;
      }
    } else {
      for (std::size_t d = 0; d < D; ++d) row[d] = first[d].bits;
    }
    std::fill(row + D, row + to_stride, typename Units::Unit{});
  }
}

/// Transposes the block of queries at i0: to[units, block] = rows i0 … of from[T, units], zero beyond the last row.
template <typename Unit>
void columns_of(float* to, const Unit* from, std::size_t stride, std::size_t count, std::size_t units) {
  if (count < block) std::fill(to, to + units * block, 0.0f);
  transpose(reinterpret_cast<std::uint32_t*>(to), block, reinterpret_cast<const std::uint32_t*>(from), stride,
            count, units);
}

/// Stores rows to[count, D] = columns[D, block] transposed, times a factor per row.
template <typename E>
void put_rows(E* to, std::size_t stride, const float* columns, std::size_t count, std::size_t D,
              const float* factors, float* rows) {
  transpose(reinterpret_cast<std::uint32_t*>(rows), D, reinterpret_cast<const std::uint32_t*>(columns), block, D,
            count);
  for (std::size_t i = 0; i < count; ++i)
    for (std::size_t d = 0; d < D; d += lanes) {
      const std::size_t valid = std::min(lanes, D - d);
      simd::store(to + i * stride + d, simd::load(rows + i * D + d, valid) * factors[i], valid);
    }
}

/// Stores two rows of values as units along the rows, for Right operands: [row / width, column].
template <typename Units>
void put_right(float* to, std::size_t row, std::size_t column, Floats first, Floats second) {
  if constexpr (Units::width == 1) {
    simd::store(to + row * block + column, first);
    simd::store(to + (row + 1) * block + column, second);
  } else {
    simd::store(to + row / 2 * block + column, Units::pair_up(first, second));
  }
}

/// Stores a row of values as units along the columns for Left operands, [row, column / width].
template <typename Units>
void put_left(float* to, std::size_t row, std::size_t column, Floats value) {
  if constexpr (Units::width == 1) {
    simd::store(to + row * block + column, value);
  } else {
    simd::store(reinterpret_cast<runtime::Bf16*>(to) + row * block + column, value);
  }
}

/// Addresses of a head's rows in qkv, or of their gradients in d_qkv, s.row elements apart.
template <typename E>
struct QkvRows {
  /// `head` counts the query heads of all samples.
  QkvRows(const Sizes& s, E* qkv, std::size_t head, std::size_t row = 0) {
    const std::size_t key_head = head % s.H / (s.H / s.K);
    q = qkv + (head / s.H * s.T + row) * s.row + head % s.H * s.D;
    k = q + s.C - head % s.H * s.D + key_head * s.D;
    v = k + s.K * s.D;
  }

  E *q, *k, *v;
};

/// Views of one head, and of d_out if given. They refer to the arrays if their layout suits the kernels, otherwise to
/// copies in w by copy_queries() and copy_keys().
template <typename Units, typename E>
Head<Units> view(const Sizes& s, const QkvRows<const E>& rows, const E* d_out, const Workspace& w) {
  using Unit = typename Units::Unit;
  Head<Units> head;
  const auto units = [](const auto* numbers) { return reinterpret_cast<const Unit*>(numbers); };
  if constexpr (std::is_same_v<E, float> || Units::width > 1) {
    head.q = units(rows.q), head.k = units(rows.k), head.v = units(rows.v), head.d_out = units(d_out);
    head.row_stride = s.row / Units::width, head.d_out_stride = s.C / Units::width;
  } else {
    head.q = w.q, head.k = w.k, head.v = w.v, head.d_out = w.d_out;
    head.row_stride = head.d_out_stride = s.D;
  }
  if constexpr (Units::width > 1) {
    head.k_pairs = units(w.k), head.v_pairs = units(w.v);
    head.pair_row = lies_across<Units> ? s.across_stride / Units::width : 1;
    head.pair_step = lies_across<Units> ? 1 : s.D;
  } else {
    head.k_pairs = head.k, head.v_pairs = head.v;
    head.pair_row = 1, head.pair_step = head.row_stride;
  }
  return head;
}

/// Makes the copies for view(), positions begin … end-1.
template <typename Units, typename E>
void copy_queries([[maybe_unused]] const Sizes& s, [[maybe_unused]] const QkvRows<const E>& rows,
                  [[maybe_unused]] const E* d_out, [[maybe_unused]] const Workspace& w,
                  [[maybe_unused]] std::size_t begin, [[maybe_unused]] std::size_t end) {
  if constexpr (Units::width == 1 && !std::is_same_v<E, float>) {
    widen_rows(w.q + begin * s.D, rows.q + begin * s.row, s.row, end - begin, s.D);
    if (d_out != nullptr) widen_rows(w.d_out + begin * s.D, d_out + begin * s.C, s.C, end - begin, s.D);
  }
}

/// Copies keys and values the same way; begin is even. `backward`: for the backward pass.
template <typename Units, typename E>
void copy_keys([[maybe_unused]] const Sizes& s, [[maybe_unused]] const QkvRows<const E>& rows,
               [[maybe_unused]] bool backward, [[maybe_unused]] const Workspace& w,
               [[maybe_unused]] std::size_t begin, [[maybe_unused]] std::size_t end) {
  if constexpr (lies_across<Units>) {
    auto* across = reinterpret_cast<std::uint16_t*>(backward ? w.k : w.v);
    const auto* from = reinterpret_cast<const std::uint16_t*>((backward ? rows.k : rows.v) + begin * s.row);
    transpose(across + begin, s.across_stride, from, s.row, end - begin, s.D);
    for (std::size_t d = 0; d < s.D; ++d)
      std::fill(across + d * s.across_stride + end, across + d * s.across_stride + round_up(end, block),
                std::uint16_t{0});
  } else if constexpr (Units::width > 1) {
    auto* pairs = reinterpret_cast<typename Units::Unit*>(backward ? w.k : w.v);
    units_along_rows<Units>(pairs + begin / Units::width * s.D, s.D, (backward ? rows.k : rows.v) + begin * s.row,
                            s.row, end - begin, s.D);
  } else if constexpr (!std::is_same_v<E, float>) {
    widen_rows(w.k + begin * s.D, rows.k + begin * s.row, s.row, end - begin, s.D);
    widen_rows(w.v + begin * s.D, rows.v + begin * s.row, s.row, end - begin, s.D);
  }
}

/// Calls run(units, element) with values of the types for computing and for storage.
template <typename Run>
void dispatch([[maybe_unused]] const AttentionShape& shape, runtime::DType dtype,
              [[maybe_unused]] AttentionArithmetic arithmetic, const Run& run) {
#if RANVIER_AMX
  if (arithmetic == AttentionArithmetic::quickest && dtype == runtime::DType::bf16 && shape.channels % 2 == 0 &&
      amx::available())
    return run(tile::AmxUnits{}, runtime::Bf16{});
#endif
#if defined(__AVX512BF16__)
  if (arithmetic != AttentionArithmetic::floats && dtype == runtime::DType::bf16 && shape.channels % 2 == 0)
    return run(tile::Bf16Units{}, runtime::Bf16{});
#endif
  runtime::with_float_type(dtype, [&](auto element) { run(FloatUnits{}, element); });
}

}  // namespace ranvier::models::blockwise

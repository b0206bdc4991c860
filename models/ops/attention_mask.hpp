// Mask of one block of attention scores on the CPU: which queries attend to which keys. On the diagonal, work for
// invisible keys is skipped in steps of Units::stair keys. Blocks without visible keys are skipped completely.
#pragma once

#include "models/ops/attention_math.hpp"
#include "models/ops/visible_keys.hpp"
#include "models/ops/attention_workspace.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace ranvier::models::blockwise {

/// Returns `otherwise` (such as -∞) if the query (column + lane) precedes the key (row). Both count from the diagonal.
inline Floats below_diagonal(Floats value, std::size_t row, std::size_t column, float otherwise) {
  return lane_numbers() + static_cast<std::int32_t>(column) >= static_cast<std::int32_t>(row)
             ? value
             : simd::broadcast(otherwise);
}

/// Mask of one block.
struct Mask {
  enum class Kind { none, diagonal, ranges };

  /// Block with queries i0 … and keys j0 …. Reads the queries' ranges from w.
  Mask(const VisibleKeys& visible, const Workspace& w, std::size_t i0, std::size_t queries, std::size_t j0,
       std::size_t keys)
      : kind(Kind::none), first_keys(w.first_keys), end_keys(w.end_keys), begin(static_cast<std::int32_t>(j0)) {
    if (visible.plain()) {
      if (j0 == i0) kind = Kind::diagonal;
    } else if (j0 < visible.first(i0 + queries - 1) || j0 + keys > visible.end(i0)) {
      kind = Kind::ranges;
    }
  }

  /// Returns the scores of key `row` and the queries starting at `column`, or `otherwise` if the key is invisible.
  [[nodiscard]] Floats apply(Floats value, std::size_t row, std::size_t column, float otherwise) const {
    if (kind == Kind::none) return value;
    if (kind == Kind::diagonal) return below_diagonal(value, row, column, otherwise);
    const std::int32_t key = begin + static_cast<std::int32_t>(row);
    const auto first = simd::load_bits<simd::Ints>(first_keys + column);
    const auto end = simd::load_bits<simd::Ints>(end_keys + column);
    value = first <= key ? value : simd::broadcast(otherwise);
    return end > key ? value : simd::broadcast(otherwise);
  }

  Kind kind;
  const std::int32_t* first_keys;
  const std::int32_t* end_keys;
  std::int32_t begin;  ///< the block's first key
};

/// Stores the key ranges of queries i0 … in w.
inline void put_ranges(const VisibleKeys& visible, const Workspace& w, std::size_t i0, std::size_t queries) {
  if (visible.plain()) return;
  for (std::size_t i = 0; i < queries; ++i) {
    w.first_keys[i] = static_cast<std::int32_t>(visible.first(i0 + i));
    w.end_keys[i] = static_cast<std::int32_t>(visible.end(i0 + i));
  }
  std::fill(w.first_keys + queries, w.first_keys + block, 0);
  std::fill(w.end_keys + queries, w.end_keys + block, std::numeric_limits<std::int32_t>::max());
}

/// Calls work(first, count) for each step of a diagonal block. Keys first … first+count-1 are visible only to queries
/// starting at `first`.
template <typename Units, typename Work>
void for_each_stair(std::size_t keys, const Work& work) {
  constexpr std::size_t stair = Units::stair;
  for (std::size_t first = 0; first < keys; first += stair) work(first, std::min(stair, keys - first));
}

}  // namespace ranvier::models::blockwise

// Transposes small matrices of 2- or 4-byte elements in registers, for libraries that support only one layout.
#pragma once

#include "models/ops/vector_math.hpp"
#include "runtime/host/compute_pool.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace ranvier::models {
namespace detail {

/// Squares of `lanes` rows and columns, as many side by side as fit into a register.
template <typename T>
struct Block {
  static constexpr std::size_t squares = simd::lanes == 16 ? 4 / sizeof(T) : 1;
  static constexpr std::size_t width = squares * simd::lanes;
  using Row [[gnu::vector_size(width * sizeof(T))]] = T;

  Row rows[simd::lanes];
};

/// Interleaves the lanes of a and b whose bit `distance` is 0; `high`: the lanes whose bit is 1.
template <std::size_t distance, bool high, typename Vector, std::size_t... lane>
[[nodiscard]] inline Vector merge(Vector a, Vector b, std::index_sequence<lane...>) {
  constexpr auto n = sizeof...(lane);
  if constexpr (high) {
    return __builtin_shufflevector(a, b, ((lane & distance) != 0 ? n + lane : lane + distance)...);
  } else {
    return __builtin_shufflevector(a, b, ((lane & distance) != 0 ? n + lane - distance : lane)...);
  }
}

/// Transposes each of the squares.
template <std::size_t distance = simd::lanes / 2, typename T>
inline void transpose(Block<T>& block) {
  if constexpr (distance != 0) {
    constexpr auto lanes = std::make_index_sequence<Block<T>::width>();
    for (std::size_t i = 0; i < simd::lanes; ++i) {
      if ((i & distance) != 0) continue;
      const auto a = block.rows[i], b = block.rows[i + distance];
      block.rows[i] = merge<distance, false>(a, b, lanes);
      block.rows[i + distance] = merge<distance, true>(a, b, lanes);
    }
    transpose<distance / 2>(block);
  }
}

/// to[Block<T>::width, blocks · lanes] = fromᵀ; writes complete rows of `to`.
template <std::size_t blocks, typename T>
inline void transpose_blocks(T* to, std::size_t to_stride, const T* from, std::size_t from_stride) {
  constexpr std::size_t lanes = simd::lanes;
  Block<T> block[blocks];
  for (std::size_t b = 0; b < blocks; ++b) {
    for (std::size_t r = 0; r < lanes; ++r)
      std::memcpy(&block[b].rows[r], from + (b * lanes + r) * from_stride, sizeof(block[b].rows[r]));
    transpose(block[b]);
  }
  for (std::size_t c = 0; c < Block<T>::width; ++c)
    for (std::size_t b = 0; b < blocks; ++b)
      std::memcpy(to + c * to_stride + b * lanes,
                  reinterpret_cast<const T*>(&block[b].rows[c % lanes]) + c / lanes * lanes, lanes * sizeof(T));
}

/// Prefetches cache lines of the next rows, which are too many for the hardware prefetcher. Each of the blocks in a
/// line of `line` elements prefetches its share of the rows.
template <std::size_t line, typename T>
inline void fetch(const T* from, std::size_t stride, runtime::Share rows, std::size_t column) {
  constexpr std::size_t width = Block<T>::width;
  static_assert(line % width == 0);
  const std::size_t begin = rows.begin + column % line, end = std::min(rows.end, begin + width);
  for (std::size_t r = begin; r < end; ++r) __builtin_prefetch(from + r * stride + column / line * line, 0, 2);
}

}  // namespace detail

/// to[columns, rows] = fromᵀ with from[rows, columns]; strides are elements per row. T: std::uint16_t or std::uint32_t.
template <typename T>
void transpose(T* to, std::size_t to_stride, const T* from, std::size_t from_stride, std::size_t rows,
               std::size_t columns) {
  constexpr std::size_t lanes = simd::lanes, width = detail::Block<T>::width;
  // Writes complete cache lines of `to`: if its stride is a large power of two, its rows evict each other from the
  // cache.
  constexpr std::size_t line = std::max(lanes, 64 / sizeof(T));
  for (std::size_t i = 0; i < rows;) {
    const std::size_t height = i + line <= rows ? line : std::min(lanes, rows - i);
    const runtime::Share next{i + height, std::min(rows, i + height + line)};
    for (std::size_t j = 0; j < columns; j += width) {
      T* const place = to + j * to_stride + i;
      const T* const block = from + i * from_stride + j;
      detail::fetch<line>(from, from_stride, next, j);
      if (height == line && j + width <= columns) {
        detail::transpose_blocks<line / lanes>(place, to_stride, block, from_stride);
      } else if (height == lanes && j + width <= columns) {
        detail::transpose_blocks<1>(place, to_stride, block, from_stride);
      } else {
        for (std::size_t r = 0; r < height; ++r)
          for (std::size_t c = 0; c < std::min(columns - j, width); ++c)
            place[c * to_stride + r] = block[r * from_stride + c];
      }
    }
    i += height;
  }
}

}  // namespace ranvier::models

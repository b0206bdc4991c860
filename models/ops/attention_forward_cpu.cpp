#include "models/ops/attention_cpu.hpp"
#include "models/ops/attention_head.hpp"
#include "models/ops/attention_mask.hpp"
#include "runtime/base/arithmetic.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace ranvier::models {
namespace {

using namespace blockwise;
using runtime::DType;

struct KeepScores {
  float* scores;
  float* maxima;
  Mask mask;
  std::size_t first;  ///< first row and column of the block in this multiplication

  template <std::size_t rows, std::size_t vectors>
  void operator()(std::size_t row, std::size_t column, const tile::Sums<vectors>& sums) const {
#pragma GCC unroll 8
    for (std::size_t v = 0; v < vectors; ++v) {
      const std::size_t at = first + column + v * lanes;
      Floats greatest = simd::load(maxima + at);
#pragma GCC unroll 8
      for (std::size_t r = 0; r < rows; ++r) {
        const std::size_t j = first + row + r;
        const Floats score = mask.apply(sums[r][v], j, at, -std::numeric_limits<float>::infinity());
        simd::store(scores + j * block + at, score);
        greatest = simd::max(greatest, score);
      }
      simd::store(maxima + at, greatest);
    }
  }
};

/// Softmax of the scores of `keys` keys; updates running maxima and totals. Stores weights for the values in w.weights
/// (floats: in place), and the factors of earlier sums in w.factors.
template <typename Units>
void exponentials(const Workspace& w, std::size_t keys, std::size_t queries, bool diagonal, float scale,
                  const DropoutMask* kept) {
  const float log2_scale = scale * log2_e;
  for (std::size_t column = 0; column < queries; column += lanes) {
    const std::size_t rows = diagonal ? std::min(keys, column / Units::stair * Units::stair + Units::stair) : keys;
    const Floats before = simd::load(w.maxima + column);
    const Floats greatest = simd::max(before, simd::load(w.block_maxima + column));
    const Floats factor = exp2((before - greatest) * log2_scale);
    const Floats offset = greatest * log2_scale;
    Floats total = simd::load(w.totals + column) * factor;
    for (std::size_t row = 0; row < rows; row += 2) {
      const float* scores = w.scores + row * block + column;
      Floats first = exp2_for<Units>(simd::load(scores) * log2_scale - offset), second{};
      if (row + 1 < rows) second = exp2_for<Units>(simd::load(scores + block) * log2_scale - offset);
      total += first;
      total += second;
      if (kept != nullptr) {
        first = kept->apply(first, row, column);
        second = kept->apply(second, row + 1, column);
      }
      put_right<Units>(Units::width > 1 ? w.weights : w.scores, row, column, first, second);
    }
    simd::store(w.maxima + column, greatest);
    simd::store(w.factors + column, factor);
    simd::store(w.totals + column, total);
  }
}

/// Computes queries i0 … of one head.
template <typename Units, typename E>
void forward_block(const Sizes& s, const VisibleKeys& visible, const Head<Units>& head, std::size_t i0,
                   const Workspace& w, DropoutMask* kept, Prefetcher ahead, E* out, float* logsumexp) {
  using Unit = typename Units::Unit;
  const float scale = 1.0f / std::sqrt(static_cast<float>(s.D));
  const std::size_t queries = std::min(block, s.T - i0), columns = round_up(queries, step);
  const std::size_t depth = s.D / Units::width;
  columns_of(w.query_columns, head.q + i0 * head.row_stride, head.row_stride, queries, depth);
  const auto* query_columns = reinterpret_cast<const Unit*>(w.query_columns);
  const auto* weights = reinterpret_cast<const Unit*>(Units::width > 1 ? w.weights : w.scores);
  std::fill(w.maxima, w.maxima + block, lowest);
  std::fill(w.totals, w.totals + block, 0.0f);
  put_ranges(visible, w, i0, queries);

  const auto needed = visible.keys_of(i0, queries, block);
  for (std::size_t j0 = needed.begin; j0 < needed.end; j0 += block) {
    const bool diagonal = visible.causal() && j0 == i0;
    const std::size_t keys = std::min(block, needed.end - j0);
    const Mask mask(visible, w, i0, queries, j0, keys);
    ahead.fetch();
    const Left<Unit> k{head.k + j0 * head.row_stride, head.row_stride, 1};
    const Left<Unit> v = head.across(head.v_pairs, j0);
    std::fill(w.block_maxima, w.block_maxima + block, -std::numeric_limits<float>::infinity());
    const auto score = [&](std::size_t first, std::size_t count) {
      tile::product<Units>(count, columns - first, depth, {k.data + first * k.row_stride, k.row_stride, k.step},
                           Right<Unit>{query_columns + first, block},
                           KeepScores{w.scores, w.block_maxima, mask, first});
    };
    const auto weigh = [&](std::size_t first, std::size_t count) {
      const Left<Unit> left{v.data + first / Units::width * v.step, v.row_stride, v.step};
      const Right<Unit> right{weights + first / Units::width * block + first, block};
      const std::size_t n = runtime::ceil_divide(count, Units::width);
      float* sums = w.sums + first;
      if (first > 0) {
        tile::product<Units>(s.D, columns - first, n, left, right, tile::add(sums, block));
      } else if (j0 > needed.begin) {
        tile::product<Units>(s.D, columns, n, left, right, tile::scale_add(sums, block, w.factors));
      } else {
        tile::product<Units>(s.D, columns, n, left, right, tile::put(sums, block));
      }
    };
    if (kept != nullptr) kept->draw(i0, queries, j0);
    if (diagonal) {
      for_each_stair<Units>(keys, score);
      exponentials<Units>(w, keys, columns, true, scale, kept);
      for_each_stair<Units>(keys, weigh);
    } else {
      score(0, keys);
      exponentials<Units>(w, keys, columns, false, scale, kept);
      weigh(0, keys);
    }
  }
  for (std::size_t column = 0; column < columns; column += lanes) {
    const std::size_t count = std::min(lanes, queries - std::min(queries, column));
    const Floats total = simd::load(w.totals + column);
    simd::store(logsumexp + i0 + column, simd::load(w.maxima + column) * scale + log(total), count);
    simd::store(w.factors + column, 1.0f / total);
  }
  put_rows(out + i0 * s.C, s.C, w.sums, queries, s.D, w.factors, w.rows);
}

template <typename Units, typename E>
void forward(runtime::ComputePool& pool, const AttentionShape& shape, const AttentionArrays& arrays) {
  const Sizes s(shape);
  const std::size_t heads = static_cast<std::size_t>(shape.samples) * s.H;
  const std::size_t blocks = runtime::ceil_divide(s.T, block);
  // Few heads are divided into blocks, the longest first, at the cost of copying rows repeatedly.
  const bool shares_heads = heads < 8 * static_cast<std::size_t>(pool.threads());
  const std::size_t items = shares_heads ? heads * blocks : heads;
  const auto rows_of = [&](std::size_t head, std::size_t row) {
    return QkvRows<const E>(s, static_cast<const E*>(arrays.qkv), head, row);
  };
  const auto out_of = [&](std::size_t head) {
    return static_cast<E*>(arrays.out) + head / s.H * s.T * s.C + head % s.H * s.D;
  };
  const auto work = [&](std::size_t item, std::size_t following, const Workspace& w) {
    const std::size_t number = item % heads, end = blocks - item / heads, begin = shares_heads ? end - 1 : 0;
    const QkvRows<const E> rows = rows_of(number, 0);
    const VisibleKeys visible(shape, arrays.bounds, number / s.H);
    const auto head = view<Units, E>(s, rows, nullptr, w);
    DropoutMask kept(arrays.dropout, static_cast<std::int64_t>(number / s.H), number % s.H, s.T, w.kept);
    std::size_t copied = visible.keys_of(begin * block, 1, block).begin;
    for (std::size_t i = begin; i < end; ++i) {
      const std::size_t i0 = i * block, queries = std::min(block, s.T - i0);
      const auto needed = visible.keys_of(i0, queries, block);
      const std::size_t to = std::min(s.T, round_up(needed.end, block));
      copy_queries<Units, E>(s, rows, nullptr, w, i0, i0 + queries);
      if (copied < to) copy_keys<Units, E>(s, rows, false, w, copied, to);
      copied = std::max(copied, to);
      const bool stays = i + 1 < end;
      const std::size_t next_row = stays ? (i + 1) * block : 0;
      Prefetcher ahead(std::min(block, s.T - next_row), s.D * sizeof(E), needed.blocks(block));
      if (stays || following < items) {
        const std::size_t next = stays ? number : following % heads;
        const QkvRows<const E> next_rows = rows_of(next, next_row);
        ahead.add(next_rows.q, s.row * sizeof(E));
        ahead.add(out_of(next) + next_row * s.C, s.C * sizeof(E), true);
        if (visible.causal())
          for (const E* part : {next_rows.k, next_rows.v}) ahead.add(part, s.row * sizeof(E));
      }
      if (!visible.causal() && following < items) {  // its first block needs all keys
        const QkvRows<const E> keys = rows_of(following % heads, i0);
        for (const E* part : {keys.k, keys.v}) ahead.add(part, s.row * sizeof(E));
      }
      forward_block<Units, E>(s, visible, head, i0, w, arrays.dropout.rate > 0 ? &kept : nullptr, ahead,
                              out_of(number), arrays.logsumexp + number * s.T);
    }
  };
  for_each_item<Units>(pool, items, s, arrays.workspace, work);
}

}  // namespace

std::size_t attention_cpu_workspace_bytes(const AttentionShape& shape, DType /*dtype*/, int threads) {
  return Workspace(nullptr, Sizes(shape)).bytes * static_cast<std::size_t>(threads);
}

void attention_forward_cpu(runtime::ComputePool& pool, const AttentionShape& shape, DType dtype,
                           const AttentionArrays& arrays, AttentionArithmetic arithmetic) {
  check_bounds(shape, arrays.bounds);
  dispatch(shape, dtype, arithmetic,
           [&]<typename E>(auto units, E) { forward<decltype(units), E>(pool, shape, arrays); });
}

}  // namespace ranvier::models

#include "models/ops/attention_cpu.hpp"
#include "models/ops/attention_head.hpp"
#include "models/ops/attention_mask.hpp"
#include "runtime/base/arithmetic.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace ranvier::models {
namespace {

using namespace blockwise;
using runtime::DType;

/// Softmax weights from scores: 2^(score · log2_scale - offset).
template <typename Units>
struct KeepWeights {
  float* scores;
  float* weights;
  const float* offsets;
  float log2_scale;
  Mask mask;
  const DropoutMask* kept;
  std::size_t first;  ///< first row and column of the block in this multiplication

  template <std::size_t rows, std::size_t vectors>
  void operator()(std::size_t row, std::size_t column, const tile::Sums<vectors>& sums) const {
#pragma GCC unroll 8
    for (std::size_t v = 0; v < vectors; ++v) {
      const std::size_t at = first + column + v * lanes;
      const Floats offset = simd::load(offsets + at);
#pragma GCC unroll 8
      for (std::size_t r = 0; r < rows; ++r) {
        const std::size_t j = first + row + r;
        Floats weight = mask.apply(exp2_for<Units>(sums[r][v] * log2_scale - offset), j, at, 0.0f);
        simd::store(scores + j * block + at, weight);
        if (kept != nullptr) weight = kept->apply(weight, j, at);
        if (Units::width > 1 || kept != nullptr) put_left<Units>(weights, j, at, weight);
      }
    }
  }
};

/// Gradients of the scores: weight · (gradient of the weight - Σ d_out · out).
template <typename Units>
struct KeepGradients {
  const float* scores;
  float* left;   ///< units along the queries
  float* right;  ///< units along the keys
  const float* deltas;
  const DropoutMask* kept;
  std::size_t first;

  template <std::size_t rows, std::size_t vectors>
  void operator()(std::size_t row, std::size_t column, const tile::Sums<vectors>& sums) const {
#pragma GCC unroll 8
    for (std::size_t v = 0; v < vectors; ++v) {
      const std::size_t at = first + column + v * lanes;
      const Floats delta = simd::load(deltas + at);
      const auto gradient = [&](std::size_t r) {
        const std::size_t j = first + row + r;
        Floats sum = sums[r][v];
        if (kept != nullptr) sum = kept->apply(sum, j, at);
        return simd::load(scores + j * block + at) * (sum - delta);
      };
#pragma GCC unroll 8
      for (std::size_t r = 0; r < rows; r += 2) {
        const std::size_t j = first + row + r;
        const Floats one = gradient(r);
        if constexpr (Units::width == 1) {
          put_left<Units>(left, j, at, one);
          if (r + 1 < rows) put_left<Units>(left, j + 1, at, gradient(r + 1));
        } else {
          const Floats other = r + 1 < rows ? gradient(r + 1) : Floats{};
          put_left<Units>(left, j, at, one);
          if (r + 1 < rows) put_left<Units>(left, j + 1, at, other);
          put_right<Units>(right, j, at, one, other);
        }
      }
    }
  }
};

/// Queries i0 … of one head: writes their d_q, adds to w.d_k and w.d_v. Blocks come in ascending order. `opens`: the
/// keys of a diagonal block have no gradients yet.
template <typename Units, typename E>
void backward_block(const Sizes& s, const VisibleKeys& visible, const Head<Units>& head, std::size_t i0,
                    const Workspace& w, DropoutMask* kept, Prefetcher ahead, bool opens, E* d_q, const E* q,
                    const E* out, const E* d_out, const float* logsumexp) {
  using Unit = typename Units::Unit;
  constexpr std::size_t width = Units::width;
  const float scale = 1.0f / std::sqrt(static_cast<float>(s.D));
  const std::size_t queries = std::min(block, s.T - i0), columns = round_up(queries, step);
  const std::size_t query_units = runtime::ceil_divide(queries, width), depth = s.D / width;

  columns_of(w.query_columns, head.q + i0 * head.row_stride, head.row_stride, queries, depth);
  columns_of(w.gradient_columns, head.d_out + i0 * head.d_out_stride, head.d_out_stride, queries, depth);
  const auto* query_columns = reinterpret_cast<const Unit*>(w.query_columns);
  const auto* gradient_columns = reinterpret_cast<const Unit*>(w.gradient_columns);

  Right<Unit> query_rows{head.q + i0 * head.row_stride, head.row_stride};
  Right<Unit> gradient_rows{head.d_out + i0 * head.d_out_stride, head.d_out_stride};
  if (width > 1 || s.D != s.padded_D) {
    const auto copy = [&](float* to, const E* from, std::size_t stride, const Right<Unit>& units) -> Right<Unit> {
      auto* rows = reinterpret_cast<Unit*>(to);
      if constexpr (width == 1) {
        units_along_rows<Units>(rows, s.padded_D, units.data, units.stride, queries, s.D);
      } else {
        units_along_rows<Units>(rows, s.padded_D, from, stride, queries, s.D);
      }
      return {rows, s.padded_D};
    };
    query_rows = copy(w.query_rows, q + i0 * s.row, s.row, query_rows);
    gradient_rows = copy(w.gradient_rows, d_out + i0 * s.C, s.C, gradient_rows);
  }

  std::fill(w.maxima, w.maxima + block, 0.0f);
  std::fill(w.totals, w.totals + block, 0.0f);
  for (std::size_t i = 0; i < queries; ++i) {
    Floats delta{};
    for (std::size_t d = 0; d < s.D; d += lanes) {
      const std::size_t count = std::min(lanes, s.D - d), at = (i0 + i) * s.C + d;
      delta += simd::load(out + at, count) * simd::load(d_out + at, count);
    }
    w.totals[i] = simd::sum(delta);
    w.maxima[i] = logsumexp[i0 + i] * log2_e;
  }

  const bool copies_weights = width > 1 || kept != nullptr;
  const auto* weights = reinterpret_cast<const Unit*>(copies_weights ? w.weights : w.scores);
  // Floats serve both operands. Pairs of bf16 need two copies: along the queries, then along the keys.
  auto* right_gradients = w.gradients + (width > 1 ? block * block / 2 : 0);
  put_ranges(visible, w, i0, queries);
  const auto needed = visible.keys_of(i0, queries, block);
  for (std::size_t j0 = needed.begin; j0 < needed.end; j0 += block) {
    const bool diagonal = visible.causal() && j0 == i0;
    const std::size_t keys = std::min(block, needed.end - j0);
    const Mask mask(visible, w, i0, queries, j0, keys);
    ahead.fetch();
    if (kept != nullptr) kept->draw(i0, queries, j0);
    const auto keys_at = [&](const Unit* rows, std::size_t first) {
      return Left<Unit>{rows + (j0 + first) * head.row_stride, head.row_stride, 1};
    };
    const auto rebuild = [&](std::size_t first, std::size_t count) {
      tile::product<Units>(count, columns - first, depth, keys_at(head.k, first),
                           Right<Unit>{query_columns + first, block},
                           KeepWeights<Units>{w.scores, w.weights, w.maxima, scale * log2_e, mask, kept, first});
      tile::product<Units>(count, columns - first, depth, keys_at(head.v, first),
                           Right<Unit>{gradient_columns + first, block},
                           KeepGradients<Units>{w.scores, w.gradients, right_gradients, w.totals, kept, first});
    };
    // d_k and d_v of keys `first` …: sums over queries `first` ….
    const auto gather = [&](std::size_t first, std::size_t count) {
      const std::size_t skip = first / width, n = query_units - skip;
      const auto add = [&](float* to, const Unit* left, const Right<Unit>& right) {
        const Left<Unit> a{left + first * (block / width) + skip, block / width, 1};
        const Right<Unit> b{right.data + skip * right.stride, right.stride};
        float* c = to + (j0 + first) * s.padded_D;
        if (diagonal && opens) {
          tile::product<Units>(count, s.padded_D, n, a, b, tile::put(c, s.padded_D));
        } else {
          tile::product<Units>(count, s.padded_D, n, a, b, tile::add(c, s.padded_D));
        }
      };
      add(w.d_v, weights, gradient_rows);
      add(w.d_k, reinterpret_cast<const Unit*>(w.gradients), query_rows);
    };
    // d_q of queries `first` …: sums over keys `first` ….
    const auto spread = [&](std::size_t first, std::size_t count) {
      const Left<Unit> left = head.across(head.k_pairs, j0 + first);
      const Right<Unit> right{reinterpret_cast<const Unit*>(right_gradients) + first / width * block + first,
                              block};
      const std::size_t n = runtime::ceil_divide(count, width);
      if (first == 0 && j0 == needed.begin) {
        tile::product<Units>(s.D, columns, n, left, right, tile::put(w.sums, block));
      } else {
        tile::product<Units>(s.D, columns - first, n, left, right, tile::add(w.sums + first, block));
      }
    };
    if (diagonal) {
      for_each_stair<Units>(keys, rebuild);
      for_each_stair<Units>(keys, gather);
      for_each_stair<Units>(keys, spread);
    } else {
      rebuild(0, keys);
      gather(0, keys);
      spread(0, keys);
    }
  }
  std::fill(w.factors, w.factors + block, scale);
  put_rows(d_q + i0 * s.row, s.row, w.sums, queries, s.D, w.factors, w.rows);
}

/// An item is a key-value head with all query heads that read it, whose gradients are added in order.
template <typename Units, typename E>
void backward(runtime::ComputePool& pool, const AttentionShape& shape, const AttentionArrays& arrays) {
  const Sizes s(shape);
  const std::size_t items = static_cast<std::size_t>(shape.samples) * s.K, together = s.H / s.K;
  const float scale = 1.0f / std::sqrt(static_cast<float>(s.D));
  const auto *all_qkv = static_cast<const E*>(arrays.qkv), *all_out = static_cast<const E*>(arrays.out),
             *all_d_out = static_cast<const E*>(arrays.d_out);
  auto* all_d_qkv = static_cast<E*>(arrays.d_qkv);
  const auto place = [&](std::size_t head, std::size_t row) {
    return (head / s.H * s.T + row) * s.C + head % s.H * s.D;
  };
  const auto work = [&](std::size_t item, std::size_t following, const Workspace& w) {
    const VisibleKeys visible(shape, arrays.bounds, item / s.K);
    if (!visible.causal()) {
      std::fill(w.d_k, w.d_k + s.T * s.padded_D, 0.0f);
      std::fill(w.d_v, w.d_v + s.T * s.padded_D, 0.0f);
    }
    for (std::size_t number = item * together; number < (item + 1) * together; ++number) {
      const bool first_head = number == item * together, last_head = number + 1 == (item + 1) * together;
      const QkvRows<const E> rows(s, all_qkv, number);
      const QkvRows<E> d_rows(s, all_d_qkv, number);
      const E *out = all_out + place(number, 0), *d_out = all_d_out + place(number, 0);
      const auto head = view<Units, E>(s, rows, d_out, w);
      DropoutMask kept(arrays.dropout, static_cast<std::int64_t>(number / s.H), number % s.H, s.T, w.kept);
      std::size_t copied = first_head ? 0 : s.T;
      for (std::size_t i = 0; i < s.T; i += block) {
        const std::size_t queries = std::min(block, s.T - i);
        const auto needed = visible.keys_of(i, queries, block);
        const std::size_t to = std::min(s.T, round_up(needed.end, block));
        copy_queries<Units, E>(s, rows, d_out, w, i, i + queries);
        if (copied < to) copy_keys<Units, E>(s, rows, true, w, copied, to);
        copied = std::max(copied, to);
        const bool stays = i + block < s.T;
        const std::size_t next_row = stays ? i + block : 0;
        Prefetcher ahead(std::min(block, s.T - next_row), s.D * sizeof(E), needed.blocks(block));
        if (stays || !last_head || following < items) {
          const std::size_t next = stays ? number : last_head ? following * together : number + 1;
          const QkvRows<const E> next_rows(s, all_qkv, next, next_row);
          const QkvRows<E> next_d_rows(s, all_d_qkv, next, next_row);
          for (const E* d_part : {next_d_rows.q, next_d_rows.k, next_d_rows.v})
            ahead.add(d_part, s.row * sizeof(E), true);
          ahead.add(next_rows.q, s.row * sizeof(E));
          if (visible.causal())
            for (const E* part : {next_rows.k, next_rows.v}) ahead.add(part, s.row * sizeof(E));
          ahead.add(all_out + place(next, next_row), s.C * sizeof(E));
          ahead.add(all_d_out + place(next, next_row), s.C * sizeof(E));
        }
        if (!visible.causal() && last_head && following < items) {  // its first block needs all keys
          const QkvRows<const E> keys(s, all_qkv, following * together, i);
          for (const E* part : {keys.k, keys.v}) ahead.add(part, s.row * sizeof(E));
        }
        backward_block<Units, E>(s, visible, head, i, w, arrays.dropout.rate > 0 ? &kept : nullptr, ahead,
                                 first_head && visible.causal(), d_rows.q, rows.q, out, d_out,
                                 arrays.logsumexp + number * s.T);
      }
    }
    const QkvRows<E> d_rows(s, all_d_qkv, item * together);
    for (std::size_t j = 0; j < s.T; ++j)
      for (std::size_t d = 0; d < s.D; d += lanes) {
        const std::size_t count = std::min(lanes, s.D - d), from = j * s.padded_D + d, to = j * s.row + d;
        simd::store(d_rows.k + to, simd::load(w.d_k + from) * scale, count);
        simd::store(d_rows.v + to, simd::load(w.d_v + from), count);
      }
  };
  for_each_item<Units>(pool, items, s, arrays.workspace, work);
}

}  // namespace

void attention_backward_cpu(runtime::ComputePool& pool, const AttentionShape& shape, DType dtype,
                            const AttentionArrays& arrays, AttentionArithmetic arithmetic) {
  check_bounds(shape, arrays.bounds);
  dispatch(shape, dtype, arithmetic,
           [&]<typename E>(auto units, E) { backward<decltype(units), E>(pool, shape, arrays); });
}

}  // namespace ranvier::models

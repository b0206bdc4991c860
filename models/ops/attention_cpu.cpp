// Blocks of 64 queries against blocks of 64 keys. Scores lie transposed, [key, query], with queries along the
// vectors: then maxima, sums and masks of the softmax are plain vector operations, keys and values are read
// where they lie, and any D works. What lies above the diagonal is skipped in steps of 16, and blocks of which no
// query sees a key are skipped whole.
//
// Letters: T positions, D channels of a head, i queries, j keys.
#include "models/ops/attention_cpu.hpp"

#include "models/ops/attention_math.hpp"
#include "models/ops/attention_sight.hpp"
#include "models/ops/attention_tile.hpp"
#include "models/ops/kept_bits.hpp"
#include "models/ops/transpose.hpp"

#include <algorithm>
#include <atomic>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

namespace ranvier::models {
namespace {

using runtime::DType;
using simd::Floats;
using simd::lanes;
using tile::FloatUnits;
using tile::Left;
using tile::Right;

constexpr std::size_t block = 64;  // queries, keys
constexpr std::size_t step = 16;   // of the diagonal's stairs
static_assert(step % lanes == 0 && block == KeptBits::block);

/// Of scores before any was seen: finite, and so in powers of two, so that what is masked away weighs nothing.
constexpr float lowest = -FLT_MAX / 2;

constexpr std::size_t round_up(std::size_t n, std::size_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

struct Sizes {
  explicit Sizes(const AttentionShape& shape)
      : T(static_cast<std::size_t>(shape.positions)),
        H(static_cast<std::size_t>(shape.heads)),
        K(static_cast<std::size_t>(shape.stored_key_heads())),
        D(static_cast<std::size_t>(shape.channels)),
        C(H * D),
        row(shape.row_channels()),
        padded_D(round_up(D, step)) {}

  std::size_t T, H, K, D, C;
  std::size_t row;  ///< elements of a row of qkv
  std::size_t padded_D;
};

/// Hands out a thread's workspace piece by piece.
class Carver {
 public:
  explicit Carver(std::byte* begin) : begin_(begin) {}

  template <typename T>
  T* take(std::size_t n) {
    auto* piece =
        begin_ == nullptr ? nullptr : reinterpret_cast<T*>(begin_ + bytes_);  // only the size is asked for
    bytes_ += round_up(n * sizeof(T), 64);
    return piece;
  }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  std::byte* begin_;
  std::size_t bytes_ = 0;
};

/// Fetches rows into the cache while others are computed: those of a head lie far apart in the arrays, so that
/// the processor does not foresee them.
class Ahead {
 public:
  Ahead(std::size_t rows, std::size_t row_bytes, std::size_t parts)
      : rows_(rows), row_bytes_(row_bytes), parts_(parts) {}

  /// `rows` rows from `first` on, `row_stride` bytes from one to the next.
  void add(const void* first, std::size_t row_stride, bool writes = false) {
    regions_[count_++] = {first, row_stride, writes};
  }

  /// Fetches the next of `parts` parts of them all.
  void fetch() {
    const std::size_t begin = rows_ * part_ / parts_, end = rows_ * (part_ + 1) / parts_;
    ++part_;
    for (std::size_t r = 0; r < count_; ++r)
      for (std::size_t row = begin; row < end; ++row)
        for (std::size_t at = 0; at < row_bytes_; at += 64) {
          const auto* place = static_cast<const std::byte*>(regions_[r].first) + row * regions_[r].row_stride + at;
          if (regions_[r].writes) {
            __builtin_prefetch(place, 1, 2);
          } else {
            __builtin_prefetch(place, 0, 2);
          }
        }
  }

 private:
  struct Region {
    const void* first;
    std::size_t row_stride;
    bool writes;
  };

  std::size_t rows_, row_bytes_, parts_, part_ = 0, count_ = 0;
  Region regions_[8] = {};
};

/// What a thread needs beside the arrays. Units are 32 bits each, whether a float or a pair of bf16.
struct Workspace {
  Workspace(std::byte* begin, const Sizes& s) {
    Carver carver(begin);
    scores = carver.take<float>(block * block);
    weights = carver.take<float>(block * block);
    gradients = carver.take<float>(block * block);
    query_columns = carver.take<float>(s.D * block);
    gradient_columns = carver.take<float>(s.D * block);
    query_rows = carver.take<float>(block * s.padded_D);
    gradient_rows = carver.take<float>(block * s.padded_D);
    sums = carver.take<float>(s.D * block);
    rows = carver.take<float>(block * s.D);
    maxima = carver.take<float>(block);
    block_maxima = carver.take<float>(block);
    totals = carver.take<float>(block);
    factors = carver.take<float>(block);
    kept = carver.take<std::uint64_t>(block);
    first_keys = carver.take<std::int32_t>(block);
    end_keys = carver.take<std::int32_t>(block);
    q = carver.take<float>(s.T * s.D);
    k = carver.take<float>(s.T * s.D);
    v = carver.take<float>(s.T * s.D);
    d_out = carver.take<float>(s.T * s.D);
    d_k = carver.take<float>(s.T * s.padded_D);
    d_v = carver.take<float>(s.T * s.padded_D);
    bytes = round_up(carver.bytes(), 4096);
  }

  float* scores;             ///< [key, query] scores, then their exponentials
  float* weights;            ///< [key, query] what multiplies the values, in units
  float* gradients;          ///< [key, query] gradients of the scores, in units
  float* query_columns;      ///< [D units, query]
  float* gradient_columns;   ///< [D units, query] of d_out
  float* query_rows;         ///< [query units, padded D]
  float* gradient_rows;      ///< [query units, padded D] of d_out
  float* sums;               ///< [D, query] of out or d_q
  float* rows;               ///< [query, D] the same, transposed
  float* maxima;             ///< [query] of the scores so far; backward: logsumexp in powers of two
  float* block_maxima;       ///< [query]
  float* totals;             ///< [query] of the exponentials; backward: Σ d_out · out
  float* factors;            ///< [query]
  std::uint64_t* kept;       ///< [key], a bit for each query
  std::int32_t* first_keys;  ///< [query] that it sees; not written where Sight is plain
  std::int32_t* end_keys;    ///< likewise
  float* q;                  ///< [T, D] copies in float
  float* k;                  ///< likewise; or [T units, D]
  float* v;                  ///< likewise; or [T units, D]
  float* d_out;              ///< likewise
  float* d_k;                ///< [T, padded D]
  float* d_v;                ///< likewise
  std::size_t bytes;
};

/// One head's queries, keys and values as units.
template <typename Units>
struct Head {
  using Unit = typename Units::Unit;

  const Unit* q = nullptr;  ///< [T, D units], row_stride units from a position to the next
  const Unit* k = nullptr;
  const Unit* v = nullptr;
  std::size_t row_stride = 0;
  const Unit* d_out = nullptr;
  std::size_t d_out_stride = 0;
  // The same with units along the positions, [T units, D]:
  const Unit* k_pairs = nullptr;
  const Unit* v_pairs = nullptr;
  std::size_t pair_stride = 0;
};

/// to[n, D] = from[n, D] with `stride` elements from a row to its next.
template <typename E>
void widen_rows(float* to, const E* from, std::size_t stride, std::size_t n, std::size_t D) {
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t d = 0; d < D; d += lanes) {
      const std::size_t count = std::min(lanes, D - d);
      simd::store(to + i * D + d, simd::load(from + i * stride + d, count), count);
    }
}

/// to[n units, to_stride] from rows of `stride` elements: each unit holds neighbours along n; the last one and
/// columns from D on are filled up with zeros.
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

/// The block of queries at i0: to[units, block] = rows i0 … of from[T, units], zero beyond the last.
template <typename Unit>
void columns_of(float* to, const Unit* from, std::size_t stride, std::size_t count, std::size_t units) {
  if (count < block) std::fill(to, to + units * block, 0.0f);
  transpose(reinterpret_cast<std::uint32_t*>(to), block, reinterpret_cast<const std::uint32_t*>(from), stride,
            count, units);
}

/// to[count, D] rows of the storage type = columns[D, block] times the row's factor.
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

/// Stores two rows of values as units: along the rows for Right operands, [row / width, column].
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

/// -∞, or another value, where the query comes before the key. Row and column count from the diagonal.
inline Floats below_diagonal(Floats value, std::size_t row, std::size_t column, float otherwise) {
  return lane_numbers() + static_cast<std::int32_t>(column) >= static_cast<std::int32_t>(row)
             ? value
             : simd::broadcast(otherwise);
}

/// Which queries of a block see which keys.
struct Mask {
  enum class Kind { none, diagonal, ranges };

  /// Of queries i0 … and keys j0 …, whose ranges are in w.
  Mask(const Sight& sight, const Workspace& w, std::size_t i0, std::size_t queries, std::size_t j0,
       std::size_t keys)
      : kind(Kind::none), first_keys(w.first_keys), end_keys(w.end_keys), begin(static_cast<std::int32_t>(j0)) {
    if (sight.plain()) {
      if (j0 == i0) kind = Kind::diagonal;
    } else if (j0 < sight.first(i0 + queries - 1) || j0 + keys > sight.end(i0)) {
      kind = Kind::ranges;
    }
  }

  /// The value of key `row` and queries `column` … of the block, or another one where they do not see it.
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

/// Fills w's ranges for queries i0 ….
void put_ranges(const Sight& sight, const Workspace& w, std::size_t i0, std::size_t queries) {
  if (sight.plain()) return;
  for (std::size_t i = 0; i < queries; ++i) {
    w.first_keys[i] = static_cast<std::int32_t>(sight.first(i0 + i));
    w.end_keys[i] = static_cast<std::int32_t>(sight.end(i0 + i));
  }
  std::fill(w.first_keys + queries, w.first_keys + block, 0);
  std::fill(w.end_keys + queries, w.end_keys + block, std::numeric_limits<std::int32_t>::max());
}

struct KeepScores {
  float* scores;
  float* maxima;
  Mask mask;
  std::size_t first;  ///< row and column of the block at which this product begins

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

/// Calls work(first, count) for each stair of a diagonal block: rows first … first+count-1 reach the columns
/// from `first` on.
template <typename Work>
void for_each_stair(std::size_t keys, const Work& work) {
  for (std::size_t first = 0; first < keys; first += step) work(first, std::min(step, keys - first));
}

// Forward -------------------------------------------------------------------------------------------------

/// The softmax of the scores of `keys` keys, with the running maxima and totals brought up to date. Leaves
/// weights for the values in w.weights (floats: in place) and what earlier sums must be multiplied with in
/// w.factors.
template <typename Units>
void exponentials(const Workspace& w, std::size_t keys, std::size_t queries, bool diagonal, float scale,
                  const KeptBits* kept) {
  const float log2_scale = scale * log2_e;
  for (std::size_t column = 0; column < queries; column += lanes) {
    const std::size_t rows = diagonal ? std::min(keys, column / step * step + step) : keys;
    const Floats before = simd::load(w.maxima + column);
    const Floats greatest = simd::max(before, simd::load(w.block_maxima + column));
    const Floats factor = exp2((before - greatest) * log2_scale);
    const Floats offset = greatest * log2_scale;
    Floats total = simd::load(w.totals + column) * factor;
    for (std::size_t row = 0; row < rows; row += 2) {
      const float* scores = w.scores + row * block + column;
      Floats first = exp2(simd::load(scores) * log2_scale - offset), second{};
      if (row + 1 < rows) second = exp2(simd::load(scores + block) * log2_scale - offset);
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

/// Queries i0 … of one head.
template <typename Units, typename E>
void forward_block(const Sizes& s, const Sight& sight, const Head<Units>& head, std::size_t i0, const Workspace& w,
                   KeptBits* kept, Ahead ahead, E* out, float* logsumexp) {
  using Unit = typename Units::Unit;
  const float scale = 1.0f / std::sqrt(static_cast<float>(s.D));
  const std::size_t queries = std::min(block, s.T - i0), columns = round_up(queries, step);
  const std::size_t depth = s.D / Units::width;
  columns_of(w.query_columns, head.q + i0 * head.row_stride, head.row_stride, queries, depth);
  const auto* query_columns = reinterpret_cast<const Unit*>(w.query_columns);
  const auto* weights = reinterpret_cast<const Unit*>(Units::width > 1 ? w.weights : w.scores);
  std::fill(w.maxima, w.maxima + block, lowest);
  std::fill(w.totals, w.totals + block, 0.0f);
  put_ranges(sight, w, i0, queries);

  const auto needed = sight.keys_of(i0, queries, block);
  for (std::size_t j0 = needed.begin; j0 < needed.end; j0 += block) {
    const bool diagonal = sight.causal() && j0 == i0;
    const std::size_t keys = std::min(block, needed.end - j0);
    const Mask mask(sight, w, i0, queries, j0, keys);
    ahead.fetch();
    const Left<Unit> k{head.k + j0 * head.row_stride, head.row_stride, 1};
    const Left<Unit> v{head.v_pairs + j0 / Units::width * head.pair_stride, 1, head.pair_stride};
    std::fill(w.block_maxima, w.block_maxima + block, -std::numeric_limits<float>::infinity());
    const auto score = [&](std::size_t first, std::size_t count) {
      tile::product<Units>(count, columns - first, depth, {k.data + first * k.row_stride, k.row_stride, k.step},
                           Right<Unit>{query_columns + first, block},
                           KeepScores{w.scores, w.block_maxima, mask, first});
    };
    const auto weigh = [&](std::size_t first, std::size_t count) {
      const Left<Unit> left{v.data + first / Units::width * v.step, v.row_stride, v.step};
      const Right<Unit> right{weights + first / Units::width * block + first, block};
      const std::size_t n = (count + Units::width - 1) / Units::width;
      float* sums = w.sums + first;
      if (first > 0) {
        tile::product<Units>(s.D, columns - first, n, left, right, tile::Add{sums, block});
      } else if (j0 > needed.begin) {
        tile::product<Units>(s.D, columns, n, left, right, tile::ScaleAdd{sums, block, w.factors});
      } else {
        tile::product<Units>(s.D, columns, n, left, right, tile::Put{sums, block});
      }
    };
    if (kept != nullptr) kept->draw(i0, queries, j0);
    if (diagonal) {
      for_each_stair(keys, score);
      exponentials<Units>(w, keys, columns, true, scale, kept);
      for_each_stair(keys, weigh);
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

// Backward ------------------------------------------------------------------------------------------------

/// Weights of the softmax from scores: 2^(score · log2_scale - offset).
template <typename Units>
struct KeepWeights {
  float* scores;
  float* weights;
  const float* offsets;
  float log2_scale;
  Mask mask;
  const KeptBits* kept;
  std::size_t first;  ///< row and column of the block at which this product begins

  template <std::size_t rows, std::size_t vectors>
  void operator()(std::size_t row, std::size_t column, const tile::Sums<vectors>& sums) const {
#pragma GCC unroll 8
    for (std::size_t v = 0; v < vectors; ++v) {
      const std::size_t at = first + column + v * lanes;
      const Floats offset = simd::load(offsets + at);
#pragma GCC unroll 8
      for (std::size_t r = 0; r < rows; ++r) {
        const std::size_t j = first + row + r;
        Floats weight = mask.apply(exp2(sums[r][v] * log2_scale - offset), j, at, 0.0f);
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
  const KeptBits* kept;
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

/// Queries i0 … of one head: writes their d_q, adds to w.d_k and w.d_v. Blocks come in ascending order. `opens`: to
/// a diagonal block's keys nothing was added before.
template <typename Units, typename E>
void backward_block(const Sizes& s, const Sight& sight, const Head<Units>& head, std::size_t i0, const Workspace& w,
                    KeptBits* kept, Ahead ahead, bool opens, E* d_q, const E* q, const E* out, const E* d_out,
                    const float* logsumexp) {
  using Unit = typename Units::Unit;
  constexpr std::size_t width = Units::width;
  const float scale = 1.0f / std::sqrt(static_cast<float>(s.D));
  const std::size_t queries = std::min(block, s.T - i0), columns = round_up(queries, step);
  const std::size_t query_units = (queries + width - 1) / width, depth = s.D / width;

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
  // Floats serve both ways; pairs of bf16 lie along the queries in `gradients` and along the keys behind them.
  auto* right_gradients = w.gradients + (width > 1 ? block * block / 2 : 0);
  put_ranges(sight, w, i0, queries);
  const auto needed = sight.keys_of(i0, queries, block);
  for (std::size_t j0 = needed.begin; j0 < needed.end; j0 += block) {
    const bool diagonal = sight.causal() && j0 == i0;
    const std::size_t keys = std::min(block, needed.end - j0);
    const Mask mask(sight, w, i0, queries, j0, keys);
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
    // d_k and d_v of keys `first` …: sums over the queries from `first` on.
    const auto gather = [&](std::size_t first, std::size_t count) {
      const std::size_t skip = first / width, n = query_units - skip;
      const auto add = [&](float* to, const Unit* left, const Right<Unit>& right) {
        const Left<Unit> a{left + first * (block / width) + skip, block / width, 1};
        const Right<Unit> b{right.data + skip * right.stride, right.stride};
        float* c = to + (j0 + first) * s.padded_D;
        if (diagonal && opens) {
          tile::product<Units>(count, s.padded_D, n, a, b, tile::Put{c, s.padded_D});
        } else {
          tile::product<Units>(count, s.padded_D, n, a, b, tile::Add{c, s.padded_D});
        }
      };
      add(w.d_v, weights, gradient_rows);
      add(w.d_k, reinterpret_cast<const Unit*>(w.gradients), query_rows);
    };
    // d_q of the queries from `first` on: sums over keys `first` ….
    const auto spread = [&](std::size_t first, std::size_t count) {
      const Left<Unit> left{head.k_pairs + (j0 + first) / width * head.pair_stride, 1, head.pair_stride};
      const Right<Unit> right{reinterpret_cast<const Unit*>(right_gradients) + first / width * block + first,
                              block};
      const std::size_t n = (count + width - 1) / width;
      if (first == 0 && j0 == needed.begin) {
        tile::product<Units>(s.D, columns, n, left, right, tile::Put{w.sums, block});
      } else {
        tile::product<Units>(s.D, columns - first, n, left, right, tile::Add{w.sums + first, block});
      }
    };
    if (diagonal) {
      for_each_stair(keys, rebuild);
      for_each_stair(keys, gather);
      for_each_stair(keys, spread);
    } else {
      rebuild(0, keys);
      gather(0, keys);
      spread(0, keys);
    }
  }
  std::fill(w.factors, w.factors + block, scale);
  put_rows(d_q + i0 * s.row, s.row, w.sums, queries, s.D, w.factors, w.rows);
}

// Heads ---------------------------------------------------------------------------------------------------

/// Where a head's rows begin in qkv, or their gradients in d_qkv; s.row elements from one to the next.
template <typename E>
struct Three {
  /// `head` counts the queries' heads of all samples.
  Three(const Sizes& s, E* qkv, std::size_t head, std::size_t row = 0) {
    const std::size_t key_head = head % s.H / (s.H / s.K);
    q = qkv + (head / s.H * s.T + row) * s.row + head % s.H * s.D;
    k = q + s.C - head % s.H * s.D + key_head * s.D;
    v = k + s.K * s.D;
  }

  E *q, *k, *v;
};

/// Views of one head, of d_out too if there is one: of the arrays where they have the layout that the kernels
/// want, otherwise of copies in w, which copy_queries and copy_keys make.
template <typename Units, typename E>
Head<Units> view(const Sizes& s, const Three<const E>& rows, const E* d_out, const Workspace& w) {
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
    head.pair_stride = s.D;
  } else {
    head.k_pairs = head.k, head.v_pairs = head.v;
    head.pair_stride = head.row_stride;
  }
  return head;
}

/// Makes the copies of positions begin … end-1 that view promises.
template <typename Units, typename E>
void copy_queries([[maybe_unused]] const Sizes& s, [[maybe_unused]] const Three<const E>& rows,
                  [[maybe_unused]] const E* d_out, [[maybe_unused]] const Workspace& w,
                  [[maybe_unused]] std::size_t begin, [[maybe_unused]] std::size_t end) {
  if constexpr (Units::width == 1 && !std::is_same_v<E, float>) {
    widen_rows(w.q + begin * s.D, rows.q + begin * s.row, s.row, end - begin, s.D);
    if (d_out != nullptr) widen_rows(w.d_out + begin * s.D, d_out + begin * s.C, s.C, end - begin, s.D);
  }
}

/// The same of keys and values; begin is even. `backward`: for that pass.
template <typename Units, typename E>
void copy_keys([[maybe_unused]] const Sizes& s, [[maybe_unused]] const Three<const E>& rows,
               [[maybe_unused]] bool backward, [[maybe_unused]] const Workspace& w,
               [[maybe_unused]] std::size_t begin, [[maybe_unused]] std::size_t end) {
  if constexpr (Units::width > 1) {
    auto* pairs = reinterpret_cast<typename Units::Unit*>(backward ? w.k : w.v);
    units_along_rows<Units>(pairs + begin / Units::width * s.D, s.D, (backward ? rows.k : rows.v) + begin * s.row,
                            s.row, end - begin, s.D);
  } else if constexpr (!std::is_same_v<E, float>) {
    widen_rows(w.k + begin * s.D, rows.k + begin * s.row, s.row, end - begin, s.D);
    widen_rows(w.v + begin * s.D, rows.v + begin * s.row, s.row, end - begin, s.D);
  }
}

/// Calls work(item, following, workspace) for every item on whichever thread comes first; which one does not
/// matter. `following` is what the thread will do next, at or beyond `items` if nothing.
template <typename Work>
void for_each_item(runtime::ComputePool& pool, std::size_t items, const Sizes& sizes, std::byte* workspace,
                   const Work& work) {
  std::atomic<std::size_t> next = 0;
  pool.run([&](int thread, int) {
    const std::size_t bytes = Workspace(nullptr, sizes).bytes;
    const Workspace own(workspace + static_cast<std::size_t>(thread) * bytes, sizes);
    for (std::size_t item = next++, following; item < items; item = following) {
      following = next++;
      work(item, following, own);
    }
  });
}

struct Forward {
  void* out;
  float* logsumexp;
  const void* qkv;
};

template <typename Units, typename E>
void forward(runtime::ComputePool& pool, const AttentionShape& shape, const Forward& arrays, const Dropout& dropout,
             const AttentionBounds& bounds, std::byte* workspace) {
  const Sizes s(shape);
  const std::size_t heads = static_cast<std::size_t>(shape.samples) * s.H;
  const std::size_t blocks = (s.T + block - 1) / block;
  // Few heads are shared block by block, the longest first, at the price of copying rows more than once.
  const bool shares_heads = heads < 8 * static_cast<std::size_t>(pool.threads());
  const std::size_t items = shares_heads ? heads * blocks : heads;
  const auto rows_of = [&](std::size_t head, std::size_t row) {
    return Three<const E>(s, static_cast<const E*>(arrays.qkv), head, row);
  };
  const auto out_of = [&](std::size_t head) {
    return static_cast<E*>(arrays.out) + head / s.H * s.T * s.C + head % s.H * s.D;
  };
  for_each_item(pool, items, s, workspace, [&](std::size_t item, std::size_t following, const Workspace& w) {
    const std::size_t number = item % heads, end = blocks - item / heads, begin = shares_heads ? end - 1 : 0;
    const Three<const E> rows = rows_of(number, 0);
    const Sight sight(shape, bounds, number / s.H);
    const auto head = view<Units, E>(s, rows, nullptr, w);
    KeptBits kept(dropout, static_cast<std::int64_t>(number / s.H), number % s.H, s.T, w.kept);
    std::size_t copied = sight.keys_of(begin * block, 1, block).begin;
    for (std::size_t i = begin; i < end; ++i) {
      const std::size_t i0 = i * block, queries = std::min(block, s.T - i0);
      const auto needed = sight.keys_of(i0, queries, block);
      const std::size_t to = std::min(s.T, round_up(needed.end, block));
      copy_queries<Units, E>(s, rows, nullptr, w, i0, i0 + queries);
      if (copied < to) copy_keys<Units, E>(s, rows, false, w, copied, to);
      copied = std::max(copied, to);
      const bool stays = i + 1 < end;
      const std::size_t next_row = stays ? (i + 1) * block : 0;
      Ahead ahead(std::min(block, s.T - next_row), s.D * sizeof(E), needed.blocks(block));
      if (stays || following < items) {
        const std::size_t next = stays ? number : following % heads;
        const Three<const E> next_rows = rows_of(next, next_row);
        for (const E* part : {next_rows.q, next_rows.k, next_rows.v}) ahead.add(part, s.row * sizeof(E));
        ahead.add(out_of(next) + next_row * s.C, s.C * sizeof(E), true);
      }
      forward_block<Units, E>(s, sight, head, i0, w, dropout.rate > 0 ? &kept : nullptr, ahead, out_of(number),
                              arrays.logsumexp + number * s.T);
    }
  });
}

struct Backward {
  void* d_qkv;
  const void* d_out;
  const void* qkv;
  const void* out;
  const float* logsumexp;
};

/// An item is a head of keys and values with all heads of queries that read it, whose gradients add up in order.
template <typename Units, typename E>
void backward(runtime::ComputePool& pool, const AttentionShape& shape, const Backward& arrays,
              const Dropout& dropout, const AttentionBounds& bounds, std::byte* workspace) {
  const Sizes s(shape);
  const std::size_t items = static_cast<std::size_t>(shape.samples) * s.K, together = s.H / s.K;
  const float scale = 1.0f / std::sqrt(static_cast<float>(s.D));
  const auto *all_qkv = static_cast<const E*>(arrays.qkv), *all_out = static_cast<const E*>(arrays.out),
             *all_d_out = static_cast<const E*>(arrays.d_out);
  auto* all_d_qkv = static_cast<E*>(arrays.d_qkv);
  const auto place = [&](std::size_t head, std::size_t row) {
    return (head / s.H * s.T + row) * s.C + head % s.H * s.D;
  };
  for_each_item(pool, items, s, workspace, [&](std::size_t item, std::size_t following, const Workspace& w) {
    const Sight sight(shape, bounds, item / s.K);
    if (!sight.causal()) {
      std::fill(w.d_k, w.d_k + s.T * s.padded_D, 0.0f);
      std::fill(w.d_v, w.d_v + s.T * s.padded_D, 0.0f);
    }
    for (std::size_t number = item * together; number < (item + 1) * together; ++number) {
      const bool first_head = number == item * together, last_head = number + 1 == (item + 1) * together;
      const Three<const E> rows(s, all_qkv, number);
      const Three<E> d_rows(s, all_d_qkv, number);
      const E *out = all_out + place(number, 0), *d_out = all_d_out + place(number, 0);
      const auto head = view<Units, E>(s, rows, d_out, w);
      KeptBits kept(dropout, static_cast<std::int64_t>(number / s.H), number % s.H, s.T, w.kept);
      std::size_t copied = first_head ? 0 : s.T;
      for (std::size_t i = 0; i < s.T; i += block) {
        const std::size_t queries = std::min(block, s.T - i);
        const auto needed = sight.keys_of(i, queries, block);
        const std::size_t to = std::min(s.T, round_up(needed.end, block));
        copy_queries<Units, E>(s, rows, d_out, w, i, i + queries);
        if (copied < to) copy_keys<Units, E>(s, rows, true, w, copied, to);
        copied = std::max(copied, to);
        const bool stays = i + block < s.T;
        const std::size_t next_row = stays ? i + block : 0;
        Ahead ahead(std::min(block, s.T - next_row), s.D * sizeof(E), needed.blocks(block));
        if (stays || !last_head || following < items) {
          const std::size_t next = stays ? number : last_head ? following * together : number + 1;
          const Three<const E> next_rows(s, all_qkv, next, next_row);
          const Three<E> next_d_rows(s, all_d_qkv, next, next_row);
          for (const auto& [part, d_part] : {std::pair{next_rows.q, next_d_rows.q},
                                             {next_rows.k, next_d_rows.k},
                                             {next_rows.v, next_d_rows.v}}) {
            ahead.add(part, s.row * sizeof(E));
            ahead.add(d_part, s.row * sizeof(E), true);
          }
          ahead.add(all_out + place(next, next_row), s.C * sizeof(E));
          ahead.add(all_d_out + place(next, next_row), s.C * sizeof(E));
        }
        backward_block<Units, E>(s, sight, head, i, w, dropout.rate > 0 ? &kept : nullptr, ahead,
                                 first_head && sight.causal(), d_rows.q, rows.q, out, d_out,
                                 arrays.logsumexp + number * s.T);
      }
    }
    const Three<E> d_rows(s, all_d_qkv, item * together);
    for (std::size_t j = 0; j < s.T; ++j)
      for (std::size_t d = 0; d < s.D; d += lanes) {
        const std::size_t count = std::min(lanes, s.D - d), from = j * s.padded_D + d, to = j * s.row + d;
        simd::store(d_rows.k + to, simd::load(w.d_k + from) * scale, count);
        simd::store(d_rows.v + to, simd::load(w.d_v + from), count);
      }
  });
}

/// Calls run(units, element) with values of the types to compute with and to read and write.
template <typename Run>
void dispatch([[maybe_unused]] const AttentionShape& shape, DType dtype,
              [[maybe_unused]] AttentionArithmetic arithmetic, const Run& run) {
#if defined(__AVX512BF16__)
  if (arithmetic == AttentionArithmetic::quickest && dtype == DType::bf16 && shape.channels % 2 == 0)
    return run(tile::Bf16Units{}, runtime::Bf16{});
#endif
  runtime::with_float_type(dtype, [&](auto element) { run(FloatUnits{}, element); });
}

}  // namespace

std::size_t attention_cpu_workspace_bytes(const AttentionShape& shape, DType /*dtype*/, int threads) {
  return Workspace(nullptr, Sizes(shape)).bytes * static_cast<std::size_t>(threads);
}

void attention_forward_cpu(runtime::ComputePool& pool, const AttentionShape& shape, DType dtype, void* out,
                           float* logsumexp, const void* qkv, const Dropout& dropout, std::byte* workspace,
                           const AttentionBounds& bounds, AttentionArithmetic arithmetic) {
  check_bounds(shape, bounds);
  dispatch(shape, dtype, arithmetic, [&](auto units, auto element) {
    forward<decltype(units), decltype(element)>(pool, shape, {out, logsumexp, qkv}, dropout, bounds, workspace);
  });
}

void attention_backward_cpu(runtime::ComputePool& pool, const AttentionShape& shape, DType dtype, void* d_qkv,
                            const void* d_out, const void* qkv, const void* out, const float* logsumexp,
                            const Dropout& dropout, std::byte* workspace, const AttentionBounds& bounds,
                            AttentionArithmetic arithmetic) {
  check_bounds(shape, bounds);
  dispatch(shape, dtype, arithmetic, [&](auto units, auto element) {
    backward<decltype(units), decltype(element)>(pool, shape, {d_qkv, d_out, qkv, out, logsumexp}, dropout, bounds,
                                                 workspace);
  });
}

}  // namespace ranvier::models

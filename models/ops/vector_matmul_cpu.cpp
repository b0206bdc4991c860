// Loops of BLIS (Van Zee and van de Geijn, "BLIS: A Framework for Rapidly Instantiating BLAS Functionality", 2015). b
// is packed part by part (of N and K) into panels as wide as a tile. A panel stays in the L1 cache while the rows of a
// block of a pass it; the block stays in the L2 cache.
#include "models/ops/matmul_cpu.hpp"

#include "models/ops/library_matmul.hpp"
#include "models/ops/scratch.hpp"
#include "models/ops/transpose.hpp"
#include "models/ops/vector_math.hpp"
#include "models/ops/vector_tile.hpp"
#include "runtime/base/arithmetic.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace ranvier::models {
namespace {

using runtime::ceil_divide;
using runtime::DType;
using runtime::Share;
using simd::lanes;

constexpr std::size_t height = tile::tile_rows, width = tile::tile_vectors * lanes;  // 6 × 16, for a tile
constexpr std::size_t deepest = 384;             // depth of a panel of b: 24 KiB
constexpr std::size_t block_rows = 16 * height;  // rows of a block of a: 144 KiB
constexpr std::size_t widest = 768;              // columns of b that are packed at a time: up to 1.1 MiB
constexpr std::size_t tallest = 768;             // rows whose sums are stored in float

struct Memory {
  Scratch a, b, sums, bias, strip;
};

/// An operand in its stored layout.
struct Stored {
  const void* data;
  DType dtype;
  std::size_t stride;
  bool transposed;

  /// Calls f with a pointer to element (row, column) of the stored operand.
  template <typename F>
  void at(std::size_t row, std::size_t column, const F& f) const {
    runtime::with_float_type(dtype, [&]<typename T>(T) { f(static_cast<const T*>(data) + row * stride + column); });
  }
};

/// Elements from[i …] up to `end`, then zeros.
template <typename T>
simd::Floats load_some(const T* from, std::size_t i, std::size_t end) {
  if (i + lanes <= end) return simd::load(from + i);
  return i < end ? simd::load(from + i, end - i) : simd::Floats{};
}

/// Prefetches a piece of a row that is packed soon: rows far apart are too much for the hardware prefetcher.
template <typename T>
void prefetch_row(const T* row, std::size_t stride, std::size_t n) {
  constexpr std::size_t ahead = 12, line = 64 / sizeof(T);
  for (std::size_t i = 0; i < n; i += line) __builtin_prefetch(row + ahead * stride + i);
}

/// to[panels, K, width] = rows `depth` and columns `columns` of b, filled up with zeros.
void pack_b(float* to, const Stored& b, Share depth, Share columns, Scratch& strip) {
  const std::size_t k = depth.end - depth.begin;
  if (!b.transposed) {
    constexpr std::size_t together = 4;  // panels, so that more than a cache line of a row is read
    b.at(depth.begin, 0, [&](const auto* from) {
      for (std::size_t first = columns.begin; first < columns.end;
           first += together * width, to += together * width * k) {
        const std::size_t end = std::min(columns.end, first + together * width);
        for (std::size_t i = 0; i < k; ++i) {
          const auto* const row = from + i * b.stride;
          prefetch_row(row + first, b.stride, end - first);
          float* place = to + i * width;
          for (std::size_t column = first; column < end; column += width, place += k * width)
            for (std::size_t v = 0; v < width; v += lanes) simd::store(place + v, load_some(row, column + v, end));
        }
      }
    });
    return;
  }
  for (std::size_t column = columns.begin; column < columns.end; column += width, to += k * width) {
    const std::size_t count = std::min(width, columns.end - column);
    if (count < width) std::fill_n(to, k * width, 0.0f);
    auto* const rows = strip.get<float>(width * k);
    b.at(column, depth.begin, [&](const auto* from) {
      for (std::size_t row = 0; row < count; ++row) simd::convert(rows + row * k, from + row * b.stride, k);
    });
    transpose(reinterpret_cast<std::uint32_t*>(to), width, reinterpret_cast<const std::uint32_t*>(rows), k, count,
              k);
  }
}

/// Block of a in floats.
struct Block {
  tile::Left<float> tile;   ///< first tile
  std::size_t tile_stride;  ///< elements between tiles
};

/// Rows `rows` of a and part `depth` of K: in place, or widened and packed.
Block block_of(const Stored& a, Share rows, Share depth, Memory& memory) {
  const std::size_t m = rows.end - rows.begin, k = depth.end - depth.begin;
  if (!a.transposed && a.dtype == DType::f32) {
    const auto* const data = static_cast<const float*>(a.data) + rows.begin * a.stride + depth.begin;
    return {{data, a.stride, 1}, height * a.stride};
  }
  if (!a.transposed) {
    const std::size_t stride = (ceil_divide(k, 16) | 1) * 16;  // an odd number of cache lines
    auto* const to = memory.a.get<float>(block_rows * ((ceil_divide(deepest, 16) | 1) * 16));
    a.at(rows.begin, depth.begin, [&](const auto* from) {
      for (std::size_t row = 0; row < m; ++row) simd::convert(to + row * stride, from + row * a.stride, k);
    });
    return {{to, stride, 1}, height * stride};
  }
  auto* const to = memory.a.get<float>(block_rows * deepest);
  a.at(depth.begin, rows.begin, [&](const auto* from) {
    alignas(64) float row[block_rows] = {};  // a row of a as stored, for all tiles
    for (std::size_t i = 0; i < k; ++i, from += a.stride) {
      prefetch_row(from, a.stride, m);
      simd::convert(row, from, m);
      for (std::size_t first = 0; first < m; first += height)
        std::memcpy(to + first * k + i * height, row + first, height * sizeof(float));
    }
  });
  return {{to, 1, height}, height * k};
}

/// Destination of the sums of a part of K.
template <typename C>
struct Result {
  C* c;
  std::size_t stride, columns;
  const float* bias;  ///< may be null
  bool adds;          ///< adds to the values in c
  float* waiting;     ///< sums of earlier parts, outside of c; or null
  float* waits;       ///< destination outside of c for sums that later parts continue; or null
  std::size_t waiting_stride;
};

/// Stores the sums of the tile at `top` and `left`.
template <typename C>
struct PutPart {
  const Result<C>& to;
  std::size_t top, left;

  template <std::size_t rows, std::size_t vectors>
  void operator()(std::size_t /*row*/, std::size_t /*column*/, const tile::Sums<vectors>& sums) const {
    simd::Floats tile[rows][vectors];
    const auto each = [&](const auto& work) {
#pragma GCC unroll 8
      for (std::size_t r = 0; r < rows; ++r)
#pragma GCC unroll 8
        for (std::size_t v = 0; v < vectors; ++v) work(tile[r][v], r, v);
    };
    const auto place = [&](std::size_t r, std::size_t v) {
      return to.c + (top + r) * to.stride + left + v * lanes;
    };
    const auto in = [&](float* waiting, std::size_t r, std::size_t v) {
      return waiting + (top + r) * to.waiting_stride + left + v * lanes;
    };
    each([&](simd::Floats& sum, std::size_t r, std::size_t v) { sum = sums[r][v]; });
    if (to.waiting != nullptr)
      each([&](simd::Floats& sum, std::size_t r, std::size_t v) { sum += simd::load(in(to.waiting, r, v)); });
    if (to.bias != nullptr)
      each([&](simd::Floats& sum, std::size_t /*r*/, std::size_t v) {
        sum += load_some(to.bias, left + v * lanes, to.columns);
      });
    if (to.waits != nullptr) {
      each([&](simd::Floats& sum, std::size_t r, std::size_t v) { simd::store(in(to.waits, r, v), sum); });
    } else if (left + width <= to.columns) {
      if (to.adds) each([&](simd::Floats& sum, std::size_t r, std::size_t v) { sum += simd::load(place(r, v)); });
      each([&](simd::Floats& sum, std::size_t r, std::size_t v) { simd::store(place(r, v), sum); });
    } else {
      each([&](simd::Floats& sum, std::size_t r, std::size_t v) {
        const std::size_t column = left + v * lanes;
        if (column >= to.columns) return;
        const std::size_t count = std::min(lanes, to.columns - column);
        simd::store(place(r, v), to.adds ? simd::load(place(r, v), count) + sum : sum, count);
      });
    }
  }
};

/// Computes rows and columns of c, up to `tallest` and `widest`.
template <typename C>
void multiply(const MatmulShape& shape, const MatmulArrays& arrays, const Stored& a, const Stored& b,
              std::size_t c_stride, Share rows, Share columns, Memory& memory) {
  const std::size_t n = columns.end - columns.begin, panels = ceil_divide(n, width);
  const std::size_t part = ceil_divide(shape.k, ceil_divide(shape.k, deepest));
  const bool gathers = !std::is_same_v<C, float> && part < shape.k;
  auto* const sums = gathers ? memory.sums.get<float>((rows.end - rows.begin) * panels * width) : nullptr;
  const float* bias = nullptr;
  if (arrays.bias != nullptr) {
    auto* const wide = memory.bias.get<float>(widest);
    runtime::with_float_type(arrays.dtype, [&]<typename T>(T) {
      simd::convert(wide, static_cast<const T*>(arrays.bias) + columns.begin, n);
    });
    bias = wide;
  }
  auto* const packed = memory.b.get<float>(panels * width * part);
  for (std::size_t begin = 0; begin < shape.k; begin += part) {
    const Share depth{begin, std::min(shape.k, begin + part)};
    const std::size_t k = depth.end - begin;
    const bool first = begin == 0, last = depth.end == shape.k;
    const Result<C> result{.c = static_cast<C*>(arrays.c) + rows.begin * c_stride + columns.begin,
                           .stride = c_stride,
                           .columns = n,
                           .bias = first ? bias : nullptr,
                           .adds = gathers ? last && arrays.accumulate : arrays.accumulate || !first,
                           .waiting = first ? nullptr : sums,
                           .waits = last ? nullptr : sums,
                           .waiting_stride = panels * width};
    pack_b(packed, b, depth, columns, memory.strip);
    for (std::size_t top = rows.begin; top < rows.end; top += block_rows) {
      const Share taken{top, std::min(rows.end, top + block_rows)};
      const Block block = block_of(a, taken, depth, memory);
      for (std::size_t panel = 0; panel < panels; ++panel)
        for (std::size_t row = top; row < taken.end; row += height) {
          tile::Left<float> left = block.tile;
          left.data += (row - top) / height * block.tile_stride;
          const std::size_t count = std::min(height, taken.end - row);
          for (std::size_t r = 0; r < count; ++r)  // prefetches c while the tile is multiplied
            __builtin_prefetch(result.c + (row - rows.begin + r) * c_stride + panel * width, 1);
          tile::tile_column<tile::FloatUnits, tile::tile_vectors>(
              0, count, 0, k, left, tile::Right<float>{packed + panel * k * width, width},
              PutPart<C>{result, row - rows.begin, panel * width});
        }
    }
  }
}

}  // namespace

bool vectors_multiply(const MatmulShape& shape) {
  static const bool better = !library_has_avx512();
  return shape.k != 0 && better;
}

void vector_matmul_cpu(runtime::ComputePool& pool, const MatmulShape& shape, const MatmulArrays& arrays) {
  const Stored a{arrays.a, arrays.dtype, shape.a_row(), shape.transpose_a};
  const Stored b{arrays.b, arrays.dtype, shape.b_row(), shape.transpose_b};
  pool.run([&](int thread, int threads) {
    static thread_local Memory memory;
    Share rows{0, shape.m}, columns{0, shape.n};
    // Split by rows, like the operations before and after, whose results are then in the thread's own cache. For few
    // rows, split by columns, so that not every thread packs all of b. Weight gradients, which no operation waits for,
    // are split so that less is packed: all of a and a share of b, or the opposite.
    const bool few_rows = shape.m < 16 * height * static_cast<std::size_t>(threads);
    const bool by_columns = (few_rows || shape.transpose_a) && shape.n > shape.m;
    (by_columns ? columns : rows) =
        runtime::share_of(by_columns ? shape.n : shape.m, thread, threads, by_columns ? width : height);
    runtime::with_float_type(arrays.c_dtype, [&]<typename T>(T) {
      for (std::size_t column = columns.begin; column < columns.end; column += widest)
        for (std::size_t row = rows.begin; row < rows.end; row += tallest)
          multiply<T>(shape, arrays, a, b, shape.c_row(), {row, std::min(rows.end, row + tallest)},
                      {column, std::min(columns.end, column + widest)}, memory);
    });
  });
}

}  // namespace ranvier::models

// Splits a multiplication into pieces whose operands have no gaps and fit the L2 cache; the library multiplies each on
// one thread. The split of N and K depends on the shape only, and M is split only if that does not change bits. So
// neither the number of threads nor of rows changes a result.
#include "models/ops/matmul_cpu.hpp"

#include "models/ops/dispatch.hpp"
#include "models/ops/library_matmul.hpp"
#include "models/ops/library_pieces.hpp"
#include "models/ops/scratch.hpp"
#include "models/ops/transpose.hpp"
#include "models/ops/vector_math.hpp"
#include "runtime/base/arithmetic.hpp"
#include "runtime/base/error.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace ranvier::models {
namespace {

using runtime::ceil_divide;
using runtime::DType;
using runtime::Share;

/// Split of a dimension; the last piece may be shorter.
struct Pieces {
  std::size_t count = 1;
  std::size_t length = 0;
};

struct Cuts {
  Pieces n, k;
  std::size_t rows = 0;   ///< maximum rows of a block
  bool widened = false;   ///< operands are copied to f32
  bool copies_a = false;  ///< to [rows, K piece], from another layout, a wider row or a narrower type
  bool copies_b = false;
  bool gathers_c = false;  ///< sums are stored in f32 outside of c until they are complete
  std::size_t height = 0;  ///< if not 0, rows of each library call, filled up with zeros
};

/// Pieces of about `wanted` of `size` elements, if size > longest. A row of a piece has an odd number of cache lines,
/// so that rows of a copied block use all cache sets.
Pieces pieces_of(std::size_t size, std::size_t longest, std::size_t wanted, DType dtype) {
  if (size <= longest) return {1, size};
  const std::size_t line = 64 / size_of(dtype);
  const std::size_t length = (ceil_divide(ceil_divide(size, ceil_divide(size, wanted)), line) | 1) * line;
  return {ceil_divide(size, length), length};
}

Cuts cut(const MatmulShape& shape, const MatmulArrays& arrays, bool widened) {
  constexpr std::size_t copy_bytes = std::size_t{1} << 20;  // limit of a block of a, and of c
  const DType dtype = widened ? DType::f32 : arrays.dtype;
  const bool a_has_gaps = shape.a_row() != shape.a_columns(), b_has_gaps = shape.b_row() != shape.b_columns();
  const LibraryRows library = library_rows(dtype);
  const std::size_t longest_k = shape.k % 64 == 0 ? library.longest_k_by_64 : library.longest_k;
  const bool copies_b = widened || b_has_gaps || (shape.transpose_b && shape.k > longest_k);
  Cuts cuts{.n = {1, shape.n}, .k = {1, shape.k}, .widened = widened};
  if (copies_b) cuts.n = pieces_of(shape.n, 768, 512, dtype);
  if (copies_b || !shape.transpose_b) {
    const std::size_t longest = std::min<std::size_t>(1536, longest_k);
    cuts.k = pieces_of(shape.k, longest, longest < 1024 ? 512 : 1024, dtype);
  } else {  // rows of b may be split freely: a head has many columns
    cuts.n = pieces_of(shape.n, 4096, 1024, dtype);
  }
  if (!library.alike) cuts.height = 64;
  cuts.copies_a = cuts.height != 0 || widened || shape.transpose_a || a_has_gaps || cuts.k.count > 1;
  cuts.copies_b = copies_b;
  cuts.gathers_c = cuts.height != 0 || cuts.n.count > 1 || shape.c_row() != shape.n ||
                   ((cuts.k.count > 1 || widened) && arrays.c_dtype != DType::f32);
  cuts.rows = cuts.height != 0 ? cuts.height : shape.m;
  const LibraryPieces pieces =
      library_pieces({.m = cuts.rows, .n = cuts.n.length, .k = cuts.k.length, .transpose_b = shape.transpose_b});
  if (pieces.m != 0) cuts.rows = pieces.m;
  const auto limit = [&](std::size_t row_bytes) {
    cuts.rows = std::min(cuts.rows, std::clamp<std::size_t>(copy_bytes / row_bytes / 64 * 64, 64, 512));
  };
  if (cuts.copies_a) limit(cuts.k.length * size_of(dtype));
  if (cuts.gathers_c) limit(cuts.n.length * sizeof(float));
  return cuts;
}

Share piece_of(std::size_t size, std::size_t piece, const Pieces& pieces) {
  return {piece * pieces.length, std::min(size, (piece + 1) * pieces.length)};
}

const std::byte* at(const void* array, DType dtype, std::size_t element) {
  return static_cast<const std::byte*>(array) + element * size_of(dtype);
}

void widen(float* to, const void* from, DType dtype, std::size_t n) {
  runtime::with_float_type(dtype, [&]<typename T>(T) { simd::convert(to, static_cast<const T*>(from), n); });
}

/// to[rows, columns] of f32 or `dtype`, without gaps, = from[rows, columns], or its transpose if stored so. `stride`:
/// elements per stored row of `from`. `strip`: for intermediate results.
void copy_block(void* to, const std::byte* from, DType dtype, bool widened, bool transposed, std::size_t stride,
                std::size_t rows, std::size_t columns, Scratch& strip) {
  const std::size_t element = size_of(dtype);
  if (!transposed) {
    for (std::size_t i = 0; i < rows; ++i) {
      if (widened) {
        widen(static_cast<float*>(to) + i * columns, from + i * stride * element, dtype, columns);
      } else {
        std::memcpy(static_cast<std::byte*>(to) + i * columns * element, from + i * stride * element,
                    columns * element);
      }
    }
  } else if (widened && dtype != DType::f32) {
    constexpr std::size_t height = 64;
    auto* wide = strip.get<float>(height * rows);
    for (std::size_t j = 0; j < columns; j += height) {
      const std::size_t count = std::min(height, columns - j);
      for (std::size_t r = 0; r < count; ++r)
        widen(wide + r * rows, from + (j + r) * stride * element, dtype, rows);
      transpose(static_cast<std::uint32_t*>(to) + j, columns, reinterpret_cast<std::uint32_t*>(wide), rows, count,
                rows);
    }
  } else if (element == 4) {
    transpose(static_cast<std::uint32_t*>(to), columns, reinterpret_cast<const std::uint32_t*>(from), stride,
              columns, rows);
  } else {
    transpose(static_cast<std::uint16_t*>(to), columns, reinterpret_cast<const std::uint16_t*>(from), stride,
              columns, rows);
  }
}

/// c[rows, columns] (+)= from[rows, columns], with `stride` elements per row of c.
void put_block(void* c, DType dtype, std::size_t stride, const float* from, std::size_t rows, std::size_t columns,
               bool accumulate) {
  runtime::with_float_type(dtype, [&]<typename T>(T) {
    for (std::size_t i = 0; i < rows; ++i) {
      auto* to = static_cast<T*>(c) + i * stride;
      for (std::size_t j = 0; j < columns; j += simd::lanes) {
        const std::size_t count = std::min(columns - j, simd::lanes);
        const simd::Floats sum = simd::load(from + i * columns + j, count);
        simd::store(to + j, accumulate ? simd::load(to + j, count) + sum : sum, count);
      }
    }
  });
}

struct ThreadMemory {
  Scratch a, b, c, bias, strip;
};

/// Computes rows `rows` of c in piece `n_piece` of its columns.
void multiply(const MatmulShape& shape, const MatmulArrays& arrays, const Cuts& cuts, Share rows,
              std::size_t n_piece, ThreadMemory& memory) {
  const DType dtype = cuts.widened ? DType::f32 : arrays.dtype;
  const Share columns = piece_of(shape.n, n_piece, cuts.n);
  const std::size_t m = rows.end - rows.begin, n = columns.end - columns.begin;
  const std::size_t height = std::max(m, cuts.height);
  const std::size_t c_begin = rows.begin * shape.c_row() + columns.begin;
  auto* c = static_cast<std::byte*>(arrays.c) + c_begin * size_of(arrays.c_dtype);
  auto* sums = cuts.gathers_c ? memory.c.get<float>(height * n) : nullptr;

  const void* bias = arrays.bias == nullptr ? nullptr : at(arrays.bias, arrays.dtype, columns.begin);
  if (bias != nullptr && cuts.widened) {
    auto* wide = memory.bias.get<float>(n);
    widen(wide, bias, arrays.dtype, n);
    bias = wide;
  }
  for (std::size_t k_piece = 0; k_piece < cuts.k.count; ++k_piece) {
    const Share depth = piece_of(shape.k, k_piece, cuts.k);
    const std::size_t k = depth.end - depth.begin;

    const void* a =
        at(arrays.a, arrays.dtype,
           shape.transpose_a ? depth.begin * shape.a_row() + rows.begin : rows.begin * shape.a_row() + depth.begin);
    if (cuts.copies_a) {
      auto* copy = memory.a.get(height * k * size_of(dtype));
      std::fill(copy + m * k * size_of(dtype), copy + height * k * size_of(dtype), std::byte{});
      copy_block(copy, static_cast<const std::byte*>(a), arrays.dtype, cuts.widened, shape.transpose_a,
                 shape.a_row(), m, k, memory.strip);
      a = copy;
    }
    const void* b = at(arrays.b, arrays.dtype,
                       shape.transpose_b ? columns.begin * shape.b_row() + depth.begin
                                         : depth.begin * shape.b_row() + columns.begin);
    if (cuts.copies_b) {
      void* copy = memory.b.get(n * k * size_of(dtype));
      copy_block(copy, static_cast<const std::byte*>(b), arrays.dtype, cuts.widened, false, shape.b_row(),
                 shape.transpose_b ? n : k, shape.transpose_b ? k : n, memory.strip);
      b = copy;
    }
    library_matmul({.m = height,
                    .n = n,
                    .k = k,
                    .transpose_b = shape.transpose_b,
                    .dtype = dtype,
                    .c_dtype = sums != nullptr ? DType::f32 : arrays.c_dtype,
                    .has_bias = bias != nullptr && k_piece == 0,
                    .accumulate = k_piece > 0 || (arrays.accumulate && sums == nullptr)},
                   sums != nullptr ? static_cast<void*>(sums) : c, a, b, bias);
  }
  if (sums != nullptr) put_block(c, arrays.c_dtype, shape.c_row(), sums, m, n, arrays.accumulate);
}

/// Result for K = 0.
void put_bias(const MatmulShape& shape, const MatmulArrays& arrays) {
  if (arrays.accumulate) return;
  runtime::with_float_type(arrays.c_dtype, [&]<typename C>(C) {
    runtime::with_float_type(arrays.dtype, [&]<typename B>(B) {
      auto* c = static_cast<C*>(arrays.c);
      const auto* bias = static_cast<const B*>(arrays.bias);
      const std::size_t stride = shape.c_row();
      for (std::size_t i = 0; i < shape.m; ++i)
        for (std::size_t j = 0; j < shape.n; ++j)
          c[i * stride + j] = runtime::from_float<C>(bias == nullptr ? 0.0f : runtime::to_float(bias[j]));
    });
  });
}

void run(runtime::ComputePool& pool, const MatmulShape& shape, const MatmulArrays& arrays, bool widened) {
  if (shape.k == 0) return put_bias(shape, arrays);
  const Cuts cuts = cut(shape, arrays, widened);
  pool.run([&](int thread, int threads) {
    static thread_local ThreadMemory memory;
    Share rows{0, shape.m}, pieces{0, cuts.n.count};
    if (cuts.n.count > 1 && shape.n > shape.m) {
      pieces = runtime::share_of(cuts.n.count, thread, threads);
    } else {
      rows = runtime::share_of(shape.m, thread, threads, 16);
    }
    for (std::size_t piece = pieces.begin; piece < pieces.end; ++piece)
      for (std::size_t row = rows.begin; row < rows.end; row += cuts.rows)
        multiply(shape, arrays, cuts, {row, std::min(rows.end, row + cuts.rows)}, piece, memory);
  });
}

/// sums[width] += each of `rows` rows, in order, `stride` elements apart. In half precision, a thread's pieces of rows
/// are too short for the hardware prefetcher, so the next ones are prefetched.
template <std::size_t at_once = 8, typename T>
void add_rows(float* sums, const T* from, std::size_t stride, std::size_t rows, std::size_t width) {
  constexpr std::size_t ahead = 16, line = 64 / sizeof(T);
  std::size_t row = 0;
  for (; row + at_once <= rows; row += at_once) {
    simd::for_lanes(0, width, [&](std::size_t j, auto count) {
      if (sizeof(T) < sizeof(float) && j % line == 0)
        for (std::size_t r = 0; r < at_once; ++r) __builtin_prefetch(from + (row + ahead + r) * stride + j);
      simd::Floats sum = simd::load(sums + j, count);
#pragma GCC unroll 8
      for (std::size_t r = 0; r < at_once; ++r) sum += simd::load(from + (row + r) * stride + j, count);
      simd::store(sums + j, sum, count);
    });
  }
  if constexpr (at_once > 1) add_rows<1>(sums, from + row * stride, stride, rows - row, width);
}

bool is_float(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16; }

}  // namespace

void matmul_cpu(runtime::ComputePool& pool, const MatmulShape& shape, const MatmulArrays& arrays) {
  if (amx_multiplies(shape, arrays.dtype)) return amx_matmul_cpu(pool, shape, arrays);
  if (vectors_multiply(shape)) return vector_matmul_cpu(pool, shape, arrays);
  matmul_cpu_by_library(pool, shape, arrays);
}

void matmul_cpu_by_library(runtime::ComputePool& pool, const MatmulShape& shape, const MatmulArrays& arrays) {
  const bool native = arrays.dtype == DType::f32 || (arrays.dtype == DType::bf16 && library_has_bf16());
  run(pool, shape, arrays, !native);
}

void matmul_cpu_widened(runtime::ComputePool& pool, const MatmulShape& shape, const MatmulArrays& arrays) {
  run(pool, shape, arrays, true);
}

void column_sums_cpu(runtime::ComputePool& pool, void* sums, DType sums_dtype, const void* dy, DType dtype,
                     std::size_t m, std::size_t n, bool accumulate) {
  constexpr std::size_t block_rows = 128;  // rows whose sums are added first
  constexpr std::size_t strip = 1024;      // columns whose sums fit the cache
  pool.run([&](int thread, int threads) {
    const auto share = runtime::share_of(n, thread, threads, simd::lanes);
    runtime::with_float_type(dtype, [&]<typename T>(T) {
      runtime::with_float_type(sums_dtype, [&]<typename S>(S) {
        const auto* from = static_cast<const T*>(dy);
        auto* to = static_cast<S*>(sums);
        alignas(64) float total[strip], of_block[strip];
        for (std::size_t j0 = share.begin; j0 < share.end; j0 += strip) {
          const std::size_t width = std::min(strip, share.end - j0);
          std::fill(total, total + width, 0.0f);
          for (std::size_t i0 = 0; i0 < m; i0 += block_rows) {
            std::fill(of_block, of_block + width, 0.0f);
            add_rows(of_block, from + i0 * n + j0, n, std::min(m - i0, block_rows), width);
            for (std::size_t j = 0; j < width; ++j) total[j] += of_block[j];
          }
          simd::for_lanes(0, width, [&](std::size_t j, auto count) {
            const simd::Floats sum = simd::load(total + j, count);
            simd::store(to + j0 + j, accumulate ? simd::load(to + j0 + j, count) + sum : sum, count);
          });
        }
      });
    });
  });
}

void matmul(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays) {
  expect(is_float(arrays.dtype) && (arrays.c_dtype == DType::f32 || arrays.c_dtype == arrays.dtype),
         "matmul of {} to {}", to_string(arrays.dtype), to_string(arrays.c_dtype));
  expect(arrays.bias == nullptr || !arrays.accumulate, "matmul that accumulates takes no bias");
  expect(shape.a_row() >= shape.a_columns() && shape.b_row() >= shape.b_columns() && shape.c_row() >= shape.n,
         "matmul of M {}, N {}, K {} with rows of {}, {} and {} elements", shape.m, shape.n, shape.k,
         shape.a_stride, shape.b_stride, shape.c_stride);
  if (shape.m == 0 || shape.n == 0) return;
  runtime::WorkCost cost =
      product_cost({shape.m, shape.n, shape.k}, arrays.dtype, arrays.c_dtype, arrays.accumulate);
  if (arrays.bias != nullptr) cost.bytes += static_cast<double>(bytes_of(shape.n, arrays.dtype));
  if (ran_on_gpu<matmul_cuda>(stream, shape, arrays)) return;
  stream.launch(cost, [=](runtime::ComputePool& pool) { matmul_cpu(pool, shape, arrays); });
}

void column_sums(runtime::StreamView stream, void* sums, DType sums_dtype, const void* dy, DType dtype,
                 std::size_t m, std::size_t n, bool accumulate) {
  expect(is_float(dtype) && is_float(sums_dtype), "column_sums of {} to {}", to_string(dtype),
         to_string(sums_dtype));
  if (n == 0) return;
  const std::size_t bytes = bytes_of(m * n, dtype) + bytes_of(n, sums_dtype) * (accumulate ? 2 : 1);
  if (ran_on_gpu<column_sums_cuda>(stream, sums, sums_dtype, dy, dtype, m, n, accumulate)) return;
  stream.launch(runtime::elementwise_cost(bytes, dtype), [=](runtime::ComputePool& pool) {
    column_sums_cpu(pool, sums, sums_dtype, dy, dtype, m, n, accumulate);
  });
}

}  // namespace ranvier::models

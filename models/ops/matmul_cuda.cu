#include "models/ops/matmul.hpp"

#include "models/ops/cuda_vector.cuh"
#include "models/ops/library_matmul_cuda.hpp"
#include "models/ops/library_pieces.hpp"
#include "models/ops/stream_workspace_cuda.hpp"
#include "runtime/base/arithmetic.hpp"

#include <algorithm>
#include <utility>

namespace ranvier::models {
namespace {

using runtime::DType;

// Products -----------------------------------------------------------------------------------------------

constexpr int tile = 64;   // rows and columns of c per block
constexpr int depth = 16;  // depth of a and b in shared memory
constexpr int each = 4;    // rows and columns per thread
constexpr int threads = tile / each * (tile / each);

/// Element (i, p) of a is a[i · row + p · column]; b and c the same way.
struct Strides {
  explicit Strides(const MatmulShape& s)
      : a_row(s.transpose_a ? 1 : s.a_row()),
        a_column(s.transpose_a ? s.a_row() : 1),
        b_row(s.transpose_b ? 1 : s.b_row()),
        b_column(s.transpose_b ? s.b_row() : 1),
        c(s.c_row()) {}

  std::size_t a_row, a_column, b_row, b_column, c;
};

/// Blocks are numbered along rows of tiles.
template <typename T, typename C>
__global__ void __launch_bounds__(threads)
    plain_kernel(C* c, const T* a, const T* b, const T* bias, std::size_t m, std::size_t n, std::size_t k,
                 Strides strides, bool accumulate) {
  __shared__ float a_tile[depth][tile + 1], b_tile[depth][tile + 1];
  const auto tiles_across = static_cast<unsigned>(runtime::ceil_divide(n, tile));
  const std::size_t i0 = std::size_t{blockIdx.x / tiles_across} * tile;
  const std::size_t j0 = std::size_t{blockIdx.x % tiles_across} * tile;
  const int row = static_cast<int>(threadIdx.x) / (tile / each),
            column = static_cast<int>(threadIdx.x) % (tile / each);
  float sums[each][each] = {};
  for (std::size_t p0 = 0; p0 < k; p0 += depth) {
    for (int at = static_cast<int>(threadIdx.x); at < tile * depth; at += threads) {
      // Neighbouring threads read neighbouring elements if possible.
      const bool a_along_k = strides.a_column == 1, b_along_k = strides.b_row == 1;
      const int ai = a_along_k ? at / depth : at % tile, ap = a_along_k ? at % depth : at / tile;
      const int bj = b_along_k ? at / depth : at % tile, bp = b_along_k ? at % depth : at / tile;
      a_tile[ap][ai] = i0 + ai < m && p0 + ap < k
                           ? cuda::to_float(a[(i0 + ai) * strides.a_row + (p0 + ap) * strides.a_column])
                           : 0.0f;
      b_tile[bp][bj] = j0 + bj < n && p0 + bp < k
                           ? cuda::to_float(b[(p0 + bp) * strides.b_row + (j0 + bj) * strides.b_column])
                           : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int p = 0; p < depth; ++p) {
      float left[each], right[each];
#pragma unroll
      for (int e = 0; e < each; ++e) {
        left[e] = a_tile[p][row * each + e];
        right[e] = b_tile[p][column + e * (tile / each)];
      }
#pragma unroll
      for (int r = 0; r < each; ++r)
#pragma unroll
        for (int s = 0; s < each; ++s) sums[r][s] = fmaf(left[r], right[s], sums[r][s]);
    }
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < each; ++r)
#pragma unroll
    for (int s = 0; s < each; ++s) {
      const std::size_t i = i0 + row * each + r, j = j0 + column + s * (tile / each);
      if (i >= m || j >= n) continue;
      C& place = c[i * strides.c + j];
      const float before = accumulate ? cuda::to_float(place) : bias != nullptr ? cuda::to_float(bias[j]) : 0.0f;
      place = cuda::from_float<C>(before + sums[r][s]);
    }
}

/// c[M, N] = bias[N]
template <typename T>
__global__ void __launch_bounds__(threads)
    bias_kernel(float* c, const T* bias, std::size_t m, std::size_t n, std::size_t stride) {
  const std::size_t at = std::size_t{blockIdx.x} * threads + threadIdx.x;
  if (at < m * n) c[at / n * stride + at % n] = cuda::to_float(bias[at % n]);
}

// Column sums --------------------------------------------------------------------------------------------

constexpr int across = 4;  // threads per row: 64 bytes
constexpr int down = 64;
constexpr int sum_threads = across * down;
constexpr std::size_t max_parts = 64;
constexpr std::size_t min_rows = 128;  // minimum rows of a part

/// Split of the rows into parts, depending on their number only.
struct Parts {
  explicit Parts(std::size_t m)
      : rows(std::max(min_rows, cuda::ceil_divide(m, max_parts))),
        count(std::max<std::size_t>(1, cuda::ceil_divide(m, rows))) {}

  std::size_t rows, count;
};

/// sums[blockIdx.y][columns] of rows blockIdx.y · rows …: each thread sums every down-th row, then threads are added.
/// Columns are counted from the first one of dy.
template <int width, typename T>
__global__ void __launch_bounds__(sum_threads)
    part_kernel(float* sums, const T* dy, std::size_t m, std::size_t columns, std::size_t n, std::size_t rows) {
  __shared__ float parts[sum_threads / 32][across][width];
  const int x = static_cast<int>(threadIdx.x) % across, y = static_cast<int>(threadIdx.x) / across;
  const std::size_t column = (std::size_t{blockIdx.x} * across + static_cast<std::size_t>(x)) * width;
  const std::size_t first = std::size_t{blockIdx.y} * rows, end = min(m, first + rows);
  float total[width] = {};
  if (column < columns) {
#pragma unroll 4
    for (std::size_t i = first + static_cast<std::size_t>(y); i < end; i += down) {
      float values[width];
      cuda::load(values, dy + i * n + column);
#pragma unroll
      for (int e = 0; e < width; ++e) total[e] += values[e];
    }
  }
#pragma unroll
  for (int e = 0; e < width; ++e) {
#pragma unroll
    for (int distance = 16; distance >= across; distance /= 2)
      total[e] += __shfl_xor_sync(0xffffffffu, total[e], distance);
  }
  if (threadIdx.x % 32 < across) {
#pragma unroll
    for (int e = 0; e < width; ++e) parts[threadIdx.x / 32][x][e] = total[e];
  }
  __syncthreads();
  if (threadIdx.x >= across || column >= columns) return;
  for (int warp = 1; warp < sum_threads / 32; ++warp)
#pragma unroll
    for (int e = 0; e < width; ++e) total[e] += parts[warp][x][e];
  cuda::store(sums + std::size_t{blockIdx.y} * columns + column, total);
}

/// sums[columns] (+)= Σ parts[count][columns]
template <typename S>
__global__ void __launch_bounds__(sum_threads)
    total_kernel(S* sums, const float* parts, std::size_t count, std::size_t columns, bool accumulate) {
  const std::size_t column = std::size_t{blockIdx.x} * sum_threads + threadIdx.x;
  if (column >= columns) return;
  float total = 0;
#pragma unroll 8
  for (std::size_t part = 0; part < count; ++part) total += parts[part * columns + column];
  sums[column] = cuda::from_float<S>(accumulate ? cuda::to_float(sums[column]) + total : total);
}

/// Uses the library if possible.
void multiply(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays) {
  if (arrays.bias == nullptr || arrays.c_dtype == arrays.dtype) {
    if (!library_matmul_cuda(stream, shape, arrays)) matmul_cuda_plain(stream, shape, arrays);
    return;
  }
  // The library adds a bias only in the result's type. Otherwise the bias is stored in c first.
  cuda::with_type(arrays.dtype, [&]<typename T>(T) {
    cuda::launch_each<threads>("matmul's bias", stream, shape.m * shape.n, bias_kernel<T>, arrays.c, arrays.bias,
                               shape.m, shape.n, Strides(shape).c);
  });
  MatmulArrays added = arrays;
  added.bias = nullptr;
  added.accumulate = true;
  if (!library_matmul_cuda(stream, shape, added)) matmul_cuda_plain(stream, shape, added);
}

/// Piece with rows starting at `i` and terms of the sums starting at `p`.
std::pair<MatmulShape, MatmulArrays> piece_of(const MatmulShape& shape, const MatmulArrays& arrays, std::size_t i,
                                              std::size_t p, const LibraryPieces& pieces) {
  const Strides strides(shape);
  MatmulShape piece = shape;
  piece.m = std::min(pieces.m, shape.m - i);
  piece.k = std::min(pieces.k, shape.k - p);
  piece.a_stride = std::max(strides.a_row, strides.a_column);
  piece.b_stride = std::max(strides.b_row, strides.b_column);
  piece.c_stride = strides.c;
  const auto at = [](const void* array, DType dtype, std::size_t element) {
    return static_cast<const std::byte*>(array) + element * size_of(dtype);
  };
  MatmulArrays result = arrays;
  result.c = static_cast<std::byte*>(arrays.c) + i * strides.c * size_of(arrays.c_dtype);
  result.a = at(arrays.a, arrays.dtype, i * strides.a_row + p * strides.a_column);
  result.b = at(arrays.b, arrays.dtype, p * strides.b_row);
  if (p > 0) {
    result.bias = nullptr;
    result.accumulate = true;
  }
  return {piece, result};
}

}  // namespace

void matmul_cuda_plain(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays) {
  cuda::with_type(arrays.dtype, [&]<typename T>(T type) {
    const auto run = [&]<typename C>(C) {
      const unsigned blocks =
          cuda::blocks_of(cuda::ceil_divide(shape.m, tile) * cuda::ceil_divide(shape.n, tile), 1);
      cuda::launch("matmul", stream, {blocks, threads}, plain_kernel<T, C>, arrays.c, arrays.a, arrays.b,
                   arrays.bias, shape.m, shape.n, shape.k, Strides(shape), arrays.accumulate);
    };
    if (arrays.c_dtype == DType::f32) {
      run(float{});
    } else {
      run(type);  // the only other type that matmul() accepts
    }
  });
}

void matmul_cuda(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays) {
  if (shape.k == 0) return matmul_cuda_plain(stream, shape, arrays);
  if (library_takes_whole(shape)) return multiply(stream, shape, arrays);
  const LibraryPieces pieces = library_pieces(shape);
  const bool rounds_once = pieces.k == shape.k || arrays.c_dtype == DType::f32;
  if (pieces.m == 0 || !rounds_once) return matmul_cuda_plain(stream, shape, arrays);
  for (std::size_t i = 0; i < shape.m; i += pieces.m) {
    for (std::size_t p = 0; p < shape.k; p += pieces.k) {
      const auto [piece, of_piece] = piece_of(shape, arrays, i, p, pieces);
      multiply(stream, piece, of_piece);
    }
  }
}

void column_sums_cuda(runtime::StreamView stream, void* sums, DType sums_dtype, const void* dy, DType dtype,
                      std::size_t m, std::size_t n, bool accumulate) {
  const Parts parts(m);
  auto* const partial = reinterpret_cast<float*>(cuda::stream_workspace(stream));
  // As many columns at a time as fit into the workspace.
  const std::size_t max_columns = cuda::stream_workspace_bytes / sizeof(float) / max_parts;
  for (std::size_t first = 0; first < n; first += max_columns) {
    const std::size_t columns = std::min(max_columns, n - first);
    const void* const from = static_cast<const std::byte*>(dy) + first * size_of(dtype);
    cuda::with_rows(dtype, n, {from}, [&]<typename T>(T, auto width) {
      const dim3 grid(cuda::blocks_of(columns, across * width()), static_cast<unsigned>(parts.count));
      cuda::launch("column_sums of a part", stream, {grid, sum_threads}, part_kernel<width(), T>, partial, from, m,
                   columns, n, parts.rows);
    });
    cuda::with_type(sums_dtype, [&]<typename S>(S) {
      cuda::launch_each<sum_threads>("column_sums", stream, columns, total_kernel<S>, static_cast<S*>(sums) + first,
                                     partial, parts.count, columns, accumulate);
    });
  }
}

}  // namespace ranvier::models

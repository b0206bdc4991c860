// A group of channels is a row here. blockDim.x threads compute a row and keep its channels in registers. A block
// computes blockDim.y rows at a time. Thread x has packs x, x + blockDim.x, … of `width` channels each.
#include "models/ops/norm.hpp"

#include "models/ops/cuda_vector.cuh"
#include "runtime/base/error.hpp"
#include "runtime/device/cuda_native.hpp"
#include "runtime/kernels/launch.cuh"

#include <algorithm>
#include <initializer_list>
#include <numeric>
#include <type_traits>

namespace ranvier::models {
namespace {

constexpr unsigned elementwise_threads = 256;
constexpr int max_row_threads = 512;
constexpr int max_block_rows = 8;  // rows that a block computes at a time

/// Sums over the threads of a row, identical in all of them. One instance per block, in shared memory.
struct RowSums {
  float parts[2][max_row_threads / 32][2];

  /// Called by every thread of the block, with `turn` alternating 0, 1, 0, 1, …: results of the previous turn may still
  /// be read.
  __device__ float2 sum(float first, float second, int turn) {
    first = cuda::warp_sum(first);
    second = cuda::warp_sum(second);
    const int warps = static_cast<int>(blockDim.x) / 32;
    if (warps == 1) return {first, second};
    const int row_warps = static_cast<int>(threadIdx.y) * warps;
    if (threadIdx.x % 32 == 0) {
      parts[turn][row_warps + threadIdx.x / 32][0] = first;
      parts[turn][row_warps + threadIdx.x / 32][1] = second;
    }
    __syncthreads();
    float2 total{0, 0};
    for (int warp = 0; warp < warps; ++warp) {
      total.x += parts[turn][row_warps + warp][0];
      total.y += parts[turn][row_warps + warp][1];
    }
    return total;
  }
};

template <int vectors, int width>
struct Row {
  float at[vectors][width];

  /// Fills with zeros past the end.
  template <typename T>
  __device__ void load(const T* row, int channels) {
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
      const int c = channel(v);
      if (c < channels) {
        cuda::load(at[v], row + c);
      } else {
#pragma unroll
        for (int i = 0; i < width; ++i) at[v][i] = 0;
      }
    }
  }

  template <typename T>
  __device__ void store(T* row, int channels) const {
#pragma unroll
    for (int v = 0; v < vectors; ++v)
      if (channel(v) < channels) cuda::store(row + channel(v), at[v]);
  }

  /// Calls f(v, i) for every element.
  template <typename F>
  __device__ static void each(const F& f) {
#pragma unroll
    for (int v = 0; v < vectors; ++v)
#pragma unroll
      for (int i = 0; i < width; ++i) f(v, i);
  }

  __device__ static int channel(int v) {
    return (static_cast<int>(threadIdx.x) + v * static_cast<int>(blockDim.x)) * width;
  }
};

/// Offsets of row i. LayerNorm's rows have no gaps.
template <NormKind kind>
struct Rows {
  explicit Rows(const NormShape& shape)
      : count(shape.rows * shape.groups),
        groups(shape.groups),
        x_row(shape.x_row()),
        y_row(shape.y_row()),
        channels(static_cast<int>(shape.channels)) {}

  __device__ std::size_t x(std::size_t i) const { return begin(i, x_row); }
  __device__ std::size_t y(std::size_t i) const { return begin(i, y_row); }
  __device__ std::size_t begin(std::size_t i, std::size_t stride) const {
    if constexpr (kind == NormKind::layer) return i * static_cast<std::size_t>(channels);
    return i / groups * stride + i % groups * static_cast<std::size_t>(channels);
  }

  std::size_t count, groups, x_row, y_row;
  int channels;
};

/// Intrinsics fix the rounding, so that both kernels of norm_forward() agree.
template <NormKind kind, typename T, int vectors, int width>
__device__ void write_normal(const NormForward& arrays, const Rows<kind>& rows, std::size_t row,
                             const Row<vectors, width>& x, float mean, float rstd) {
#pragma unroll
  for (int v = 0; v < vectors; ++v) {
    const int c = x.channel(v);
    if (c >= rows.channels) break;
    float w[width], b[width], result[width];
    cuda::load(w, static_cast<const T*>(arrays.weight) + c);
    if constexpr (kind == NormKind::layer) cuda::load(b, static_cast<const T*>(arrays.bias) + c);
#pragma unroll
    for (int i = 0; i < width; ++i)
      result[i] = kind == NormKind::layer ? __fmaf_rn(__fmul_rn(__fsub_rn(x.at[v][i], mean), rstd), w[i], b[i])
                                          : __fmul_rn(__fmul_rn(x.at[v][i], rstd), w[i]);
    cuda::store(static_cast<T*>(arrays.y) + rows.y(row) + c, result);
  }
}

template <NormKind kind, typename T, int vectors, int width>
__global__ void __launch_bounds__(max_row_threads)
    forward_kernel(NormForward arrays, Rows<kind> rows, float epsilon) {
  __shared__ RowSums sums;
  const std::size_t row = std::size_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const int present =
      row < rows.count ? rows.channels : 0;  // rows past the end take part in the barriers of the sums
  const std::size_t first = rows.x(row);

  Row<vectors, width> x;
  x.load(static_cast<const T*>(arrays.x) + first, present);
  if (arrays.branch != nullptr) {
    Row<vectors, width> branch;
    branch.load(static_cast<const T*>(arrays.branch) + first, present);
    x.each([&](int v, int i) { x.at[v][i] = cuda::to_float(cuda::from_float<T>(x.at[v][i] + branch.at[v][i])); });
    x.store(static_cast<T*>(arrays.sum) + first, present);
  }

  const auto channels = static_cast<float>(rows.channels);
  float mean = 0, squares = 0, variance = 0;
  if constexpr (kind == NormKind::layer) {
    float total = 0;
    x.each([&](int v, int i) { total += x.at[v][i]; });
    const float scale = 1.0f / channels;
    mean = sums.sum(total, 0, 0).x * scale;
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
      if (x.channel(v) >= rows.channels) break;
#pragma unroll
      for (int i = 0; i < width; ++i) squares += (x.at[v][i] - mean) * (x.at[v][i] - mean);
    }
    variance = sums.sum(squares, 0, 1).x * scale;
  } else {
    x.each([&](int v, int i) { squares += x.at[v][i] * x.at[v][i]; });
    variance = sums.sum(squares, 0, 0).x / channels;
  }
  const float rstd = 1.0f / sqrtf(variance + epsilon);
  if (present == 0) return;
  if (threadIdx.x == 0) {
    if constexpr (kind == NormKind::layer) arrays.mean[row] = mean;
    arrays.rstd[row] = rstd;
  }
  write_normal<kind, T>(arrays, rows, row, x, mean, rstd);
}

template <NormKind kind, typename T, int vectors, int width>
__global__ void __launch_bounds__(max_row_threads) again_kernel(NormForward arrays, Rows<kind> rows) {
  const std::size_t row = std::size_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (row >= rows.count) return;
  Row<vectors, width> x;
  x.load(static_cast<const T*>(arrays.x) + rows.x(row), rows.channels);
  write_normal<kind, T>(arrays, rows, row, x, kind == NormKind::layer ? arrays.mean[row] : 0.0f, arrays.rstd[row]);
}

/// dx of norm_block_groups rows, and their column sums to partial[block][parameters, C].
template <NormKind kind, typename T, int vectors, int width>
__global__ void __launch_bounds__(max_row_threads)
    backward_kernel(NormBackward arrays, float* partial, Rows<kind> rows) {
  constexpr int parameters = kind == NormKind::layer ? 2 : 1;
  __shared__ RowSums sums;
  float* const others = runtime::cuda::block_memory<float>();  // [blockDim.y - 1][parameters, C]: threadIdx.y > 0
  const int channels = rows.channels;
  const auto place = [&](float* blocks, std::size_t block, int parameter) {
    return blocks + (block * parameters + static_cast<std::size_t>(parameter)) * static_cast<std::size_t>(channels);
  };

  Row<vectors, width> weight, own[parameters] = {};
  weight.load(static_cast<const T*>(arrays.weight), channels);
  const float scale = 1.0f / static_cast<float>(channels);
  for (unsigned turn = 0; turn * blockDim.y < norm_block_groups; ++turn) {
    const std::size_t row = std::size_t{blockIdx.x} * norm_block_groups + turn * blockDim.y + threadIdx.y;
    const bool is_there = row < rows.count;
    const int present = is_there ? channels : 0;
    Row<vectors, width> x, dy;
    x.load(static_cast<const T*>(arrays.x) + rows.x(row), present);
    dy.load(static_cast<const T*>(arrays.dy) + rows.y(row), present);
    const float mean = kind == NormKind::layer && is_there ? arrays.mean[row] : 0.0f;
    const float rstd = is_there ? arrays.rstd[row] : 0.0f;

    float total = 0, product = 0;
    x.each([&](int v, int i) {
      const float gradient = dy.at[v][i];  // zero past the end
      const float normal = (x.at[v][i] - mean) * rstd;
      const float weighted = gradient * weight.at[v][i];
      if constexpr (kind == NormKind::layer) {
        total += weighted;
        own[1].at[v][i] += gradient;
      }
      product += weighted * normal;
      own[0].at[v][i] += gradient * normal;
      x.at[v][i] = normal;
      dy.at[v][i] = weighted;
    });
    const float2 both = sums.sum(product, total, static_cast<int>(turn % 2));
    const float mean_product = both.x * scale, mean_total = kind == NormKind::layer ? both.y * scale : 0.0f;
    const auto gradient = [&](int v, int i) {
      return (dy.at[v][i] - mean_total - x.at[v][i] * mean_product) * rstd;
    };
    if (arrays.residual != nullptr) {
      Row<vectors, width> residual;
      residual.load(static_cast<const T*>(arrays.residual) + rows.y(row), present);
      x.each([&](int v, int i) { dy.at[v][i] = gradient(v, i) + residual.at[v][i]; });
    } else {
      x.each([&](int v, int i) { dy.at[v][i] = gradient(v, i); });
    }
    dy.store(static_cast<T*>(arrays.dx) + rows.y(row), present);
  }

  if (threadIdx.y != 0) {
#pragma unroll
    for (int p = 0; p < parameters; ++p) own[p].store(place(others, threadIdx.y - 1, p), channels);
  }
  __syncthreads();
  if (threadIdx.y != 0) return;
  for (unsigned y = 1; y < blockDim.y; ++y) {
#pragma unroll
    for (int p = 0; p < parameters; ++p) {
      Row<vectors, width> more;
      more.load(place(others, y - 1, p), channels);
      more.each([&](int v, int i) { own[p].at[v][i] += more.at[v][i]; });
    }
  }
#pragma unroll
  for (int p = 0; p < parameters; ++p) own[p].store(place(partial, blockIdx.x, p), channels);
}

constexpr int sum_columns = 32, sum_rows = 16;

/// sums[n] = Σ partial[blocks, n], in an order that depends on `blocks` only.
__global__ void __launch_bounds__(sum_columns* sum_rows)
    sum_kernel(float* sums, const float* partial, std::size_t blocks, std::size_t n) {
  __shared__ float parts[sum_rows][sum_columns];
  const std::size_t column = std::size_t{blockIdx.x} * sum_columns + threadIdx.x;
  float total = 0;
  if (column < n) {
#pragma unroll 4
    for (std::size_t block = threadIdx.y; block < blocks; block += sum_rows) total += partial[block * n + column];
  }
  parts[threadIdx.y][threadIdx.x] = total;
  __syncthreads();
  if (threadIdx.y != 0 || column >= n) return;
  for (int part = 1; part < sum_rows; ++part) total += parts[part][threadIdx.x];
  sums[column] = total;
}

template <typename T>
__global__ void __launch_bounds__(elementwise_threads)
    store_kernel(T* gradient, const float* sums, std::size_t n, bool accumulate) {
  const std::size_t i = std::size_t{blockIdx.x} * elementwise_threads + threadIdx.x;
  if (i < n) gradient[i] = cuda::from_float<T>(accumulate ? cuda::to_float(gradient[i]) + sums[i] : sums[i]);
}

/// Calls f(kind, type, vectors, width, threads per block); kind, vectors and width are integral_constants. Null arrays
/// are ignored.
template <typename F>
void with_rows(const NormShape& shape, runtime::DType dtype, std::initializer_list<const void*> arrays,
               const F& f) {
  const std::size_t step = std::gcd(shape.channels, std::gcd(shape.x_row(), shape.y_row()));
  cuda::with_rows(dtype, step, arrays, [&](auto type, auto width) {
    const std::size_t packs = cuda::ceil_divide(shape.channels, static_cast<std::size_t>(width()));
    const std::size_t across = std::min<std::size_t>(max_row_threads, cuda::ceil_divide(packs, 32) * 32);
    const std::size_t vectors = cuda::ceil_divide(packs, across);
    const std::size_t most = width() <= 4 ? 8 : 4;
    expect(vectors <= most, "a norm of {} channels: a GPU's kernel takes {}, or {} where they are a multiple of 8",
           shape.channels, 8 * max_row_threads, 32 * max_row_threads);
    std::size_t rows = 1;
    while (rows < max_block_rows && 2 * rows * across <= max_row_threads) rows *= 2;
    const dim3 threads(static_cast<unsigned>(across), static_cast<unsigned>(rows));
    const auto with_kind = [&](auto vectors) {
      if (shape.kind == NormKind::layer) {
        f(std::integral_constant<NormKind, NormKind::layer>{}, type, vectors, width, threads);
      } else {
        f(std::integral_constant<NormKind, NormKind::rms>{}, type, vectors, width, threads);
      }
    };
    if (vectors == 1) {
      with_kind(std::integral_constant<int, 1>{});
    } else if (vectors == 2) {
      with_kind(std::integral_constant<int, 2>{});
    } else if (vectors <= 4) {
      with_kind(std::integral_constant<int, 4>{});
    } else if constexpr (width() <= 4) {
      with_kind(std::integral_constant<int, 8>{});
    }
  });
}

}  // namespace

void norm_forward_cuda(runtime::StreamView stream, const NormShape& shape, runtime::DType dtype,
                       const NormForward& arrays) {
  const std::size_t rows = shape.rows * shape.groups;
  if (rows == 0) return;
  with_rows(shape, dtype, {arrays.y, arrays.x, arrays.weight, arrays.bias, arrays.branch, arrays.sum},
            [&]<typename T>(auto kind, T, auto vectors, auto width, dim3 threads) {
              const runtime::cuda::Grid grid{cuda::blocks_of(rows, threads.y), threads};
              const Rows<kind()> of_shape(shape);
              if (arrays.again)
                return cuda::launch("norm_again", stream, grid, again_kernel<kind(), T, vectors(), width()>, arrays,
                                    of_shape);
              cuda::launch("norm_forward", stream, grid, forward_kernel<kind(), T, vectors(), width()>, arrays,
                           of_shape, shape.epsilon);
            });
}

void norm_backward_cuda(runtime::StreamView stream, const NormShape& shape, runtime::DType dtype,
                        const NormBackward& arrays) {
  const unsigned blocks = cuda::blocks_of(shape.rows * shape.groups, norm_block_groups);
  auto* const partial = reinterpret_cast<float*>(arrays.workspace);
  if (blocks != 0) {
    with_rows(shape, dtype, {arrays.dx, arrays.dy, arrays.x, arrays.weight, arrays.residual, arrays.workspace},
              [&]<typename T>(auto kind, T, auto vectors, auto width, dim3 threads) {
                cuda::launch("norm_backward", stream,
                             {blocks, threads, (threads.y - 1) * shape.parameters() * sizeof(float)},
                             backward_kernel<kind(), T, vectors(), width()>, arrays, partial, Rows<kind()>(shape));
              });
  }
  cuda::launch("norm_backward's sums", stream,
               {cuda::blocks_of(shape.parameters(), sum_columns), dim3(sum_columns, sum_rows)}, sum_kernel,
               arrays.sums, partial, std::size_t{blocks}, shape.parameters());
}

void store_gradient_cuda(runtime::StreamView stream, void* gradient, runtime::DType dtype, const float* sums,
                         std::size_t n, bool accumulate) {
  cuda::with_type(dtype, [&]<typename T>(T) {
    cuda::launch_each<elementwise_threads>("store_gradient", stream, n, store_kernel<T>, gradient, sums, n,
                                           accumulate);
  });
}

}  // namespace ranvier::models

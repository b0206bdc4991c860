// A row belongs to blockDim.x threads, which keep its channels in registers; a block has blockDim.y rows at a time.
// Thread x holds packs x, x + blockDim.x, … of `width` channels each.
#include "models/ops/layer_norm_cuda.hpp"

#include "models/ops/cuda_vector.cuh"
#include "runtime/cuda_native.hpp"
#include "runtime/kernels/launch.cuh"
#include "runtime/error.hpp"

#include <algorithm>

namespace ranvier::models {
namespace {

constexpr int rows_per_block = 32;  // whose column sums become one partial sum
constexpr int most_threads = 512;
constexpr int most_rows = 8;  // of a block at a time
constexpr unsigned elementwise_threads = 256;

/// Sums over the threads of a row, the same in all of them. One instance per block, in shared memory.
struct RowSums {
  float parts[2][most_threads / 32][2];

  /// Every thread of the block calls this, with `turn` 0, 1, 0, 1, …: what the last turn left may still be read.
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

  /// Zeros past the end.
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

  __device__ static int channel(int v) {
    return (static_cast<int>(threadIdx.x) + v * static_cast<int>(blockDim.x)) * width;
  }
};

/// Forward and again round alike, because each operation is named.
__device__ float normalise(float x, float mean, float rstd, float weight, float bias) {
  return __fmaf_rn(__fmul_rn(__fsub_rn(x, mean), rstd), weight, bias);
}

template <typename T, int vectors, int width>
__device__ void write_normal(T* y, const Row<vectors, width>& x, float mean, float rstd, const T* weight,
                             const T* bias, int channels) {
#pragma unroll
  for (int v = 0; v < vectors; ++v) {
    const int c = x.channel(v);
    if (c >= channels) break;
    float w[width], b[width], result[width];
    cuda::load(w, weight + c);
    cuda::load(b, bias + c);
#pragma unroll
    for (int i = 0; i < width; ++i) result[i] = normalise(x.at[v][i], mean, rstd, w[i], b[i]);
    cuda::store(y + c, result);
  }
}

template <typename T, int vectors, int width>
__global__ void __launch_bounds__(most_threads)
    forward_kernel(LayerNormForward arrays, std::size_t rows, int channels) {
  __shared__ RowSums sums;
  const std::size_t row = std::size_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const int present = row < rows ? channels : 0;  // a row that is not there takes part in the sums' barriers
  const std::size_t first = row * static_cast<std::size_t>(channels);

  Row<vectors, width> x;
  x.load(static_cast<const T*>(arrays.x) + first, present);
  if (arrays.branch != nullptr) {
    Row<vectors, width> branch;
    branch.load(static_cast<const T*>(arrays.branch) + first, present);
#pragma unroll
    for (int v = 0; v < vectors; ++v)
#pragma unroll
      for (int i = 0; i < width; ++i)
        x.at[v][i] = cuda::to_float(cuda::from_float<T>(x.at[v][i] + branch.at[v][i]));
    x.store(static_cast<T*>(arrays.sum) + first, present);
  }

  float total = 0;
#pragma unroll
  for (int v = 0; v < vectors; ++v)
#pragma unroll
    for (int i = 0; i < width; ++i) total += x.at[v][i];
  const float scale = 1.0f / static_cast<float>(channels);
  const float mean = sums.sum(total, 0, 0).x * scale;
  float squares = 0;
#pragma unroll
  for (int v = 0; v < vectors; ++v) {
    if (x.channel(v) >= channels) break;
#pragma unroll
    for (int i = 0; i < width; ++i) squares += (x.at[v][i] - mean) * (x.at[v][i] - mean);
  }
  const float rstd = 1.0f / sqrtf(sums.sum(squares, 0, 1).x * scale + layer_norm_epsilon);
  if (present == 0) return;
  if (threadIdx.x == 0) {
    arrays.mean[row] = mean;
    arrays.rstd[row] = rstd;
  }
  write_normal(static_cast<T*>(arrays.y) + first, x, mean, rstd, static_cast<const T*>(arrays.weight),
               static_cast<const T*>(arrays.bias), channels);
}

template <typename T, int vectors, int width>
__global__ void __launch_bounds__(most_threads)
    again_kernel(T* y, const float* mean, const float* rstd, const T* x, const T* weight, const T* bias,
                 std::size_t rows, int channels) {
  const std::size_t row = std::size_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (row >= rows) return;
  Row<vectors, width> values;
  values.load(x + row * static_cast<std::size_t>(channels), channels);
  write_normal(y + row * static_cast<std::size_t>(channels), values, mean[row], rstd[row], weight, bias, channels);
}

/// dx of rows_per_block rows, and their column sums to partial[block][2, C].
template <typename T, int vectors, int width>
__global__ void __launch_bounds__(most_threads)
    backward_kernel(LayerNormBackward arrays, float* partial, std::size_t rows, int channels) {
  __shared__ RowSums sums;
  float* const others =
      runtime::cuda::block_memory<float>();  // [blockDim.y - 1][2, C]: column sums of all threadIdx.y but 0

  Row<vectors, width> weight, of_weight{}, of_bias{};
  weight.load(static_cast<const T*>(arrays.weight), channels);
  const float scale = 1.0f / static_cast<float>(channels);
  for (unsigned turn = 0; turn * blockDim.y < rows_per_block; ++turn) {
    const std::size_t row = std::size_t{blockIdx.x} * rows_per_block + turn * blockDim.y + threadIdx.y;
    const bool is_there = row < rows;
    const int present = is_there ? channels : 0;
    const std::size_t first = row * static_cast<std::size_t>(channels);
    Row<vectors, width> x, dy;
    x.load(static_cast<const T*>(arrays.x) + first, present);
    dy.load(static_cast<const T*>(arrays.dy) + first, present);
    const float mean = is_there ? arrays.mean[row] : 0.0f, rstd = is_there ? arrays.rstd[row] : 0.0f;

    float total = 0, product = 0;
#pragma unroll
    for (int v = 0; v < vectors; ++v)
#pragma unroll
      for (int i = 0; i < width; ++i) {
        const float gradient = dy.at[v][i];  // zero where nothing is
        const float normal = (x.at[v][i] - mean) * rstd;
        const float weighted = gradient * weight.at[v][i];
        total += weighted;
        product += weighted * normal;
        of_weight.at[v][i] += gradient * normal;
        of_bias.at[v][i] += gradient;
        x.at[v][i] = normal;
        dy.at[v][i] = weighted;
      }
    const float2 both = sums.sum(total, product, static_cast<int>(turn % 2));
    const float mean_total = both.x * scale, mean_product = both.y * scale;
    if (arrays.residual != nullptr) {
      Row<vectors, width> residual;
      residual.load(static_cast<const T*>(arrays.residual) + first, present);
#pragma unroll
      for (int v = 0; v < vectors; ++v)
#pragma unroll
        for (int i = 0; i < width; ++i)
          dy.at[v][i] = (dy.at[v][i] - mean_total - x.at[v][i] * mean_product) * rstd + residual.at[v][i];
    } else {
#pragma unroll
      for (int v = 0; v < vectors; ++v)
#pragma unroll
        for (int i = 0; i < width; ++i) dy.at[v][i] = (dy.at[v][i] - mean_total - x.at[v][i] * mean_product) * rstd;
    }
    dy.store(static_cast<T*>(arrays.dx) + first, present);
  }

  if (threadIdx.y != 0) {
    float* const own = others + std::size_t{threadIdx.y - 1} * 2 * static_cast<std::size_t>(channels);
    of_weight.store(own, channels);
    of_bias.store(own + channels, channels);
  }
  __syncthreads();
  if (threadIdx.y != 0) return;
  for (unsigned y = 1; y < blockDim.y; ++y) {
    const float* const own = others + std::size_t{y - 1} * 2 * static_cast<std::size_t>(channels);
    Row<vectors, width> more;
    more.load(own, channels);
#pragma unroll
    for (int v = 0; v < vectors; ++v)
#pragma unroll
      for (int i = 0; i < width; ++i) of_weight.at[v][i] += more.at[v][i];
    more.load(own + channels, channels);
#pragma unroll
    for (int v = 0; v < vectors; ++v)
#pragma unroll
      for (int i = 0; i < width; ++i) of_bias.at[v][i] += more.at[v][i];
  }
  float* const to = partial + std::size_t{blockIdx.x} * 2 * static_cast<std::size_t>(channels);
  of_weight.store(to, channels);
  of_bias.store(to + channels, channels);
}

constexpr int sum_columns = 32, sum_rows = 16;

/// sums[n] = Σ partial[blocks, n], in an order that depends on `blocks` alone.
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

struct Geometry {
  dim3 threads;
  int vectors;
};

Geometry geometry(const LayerNormShape& shape, int width) {
  const std::size_t packs = cuda::ceil_divide(shape.channels, static_cast<std::size_t>(width));
  const std::size_t across = std::min<std::size_t>(most_threads, cuda::ceil_divide(packs, 32) * 32);
  std::size_t rows = 1;
  while (rows < most_rows && 2 * rows * across <= most_threads) rows *= 2;
  const std::size_t vectors = cuda::ceil_divide(packs, across);
  expect(vectors <= 8, "layer norm of {} channels: a GPU's kernel takes {}, or {} where they are a multiple of 8",
         shape.channels, 8 * most_threads, 32 * most_threads);
  return {dim3(static_cast<unsigned>(across), static_cast<unsigned>(rows)), static_cast<int>(vectors)};
}

/// Calls `f` with T, the number of vectors, the width and the threads of a block; as with_rows().
template <typename F>
void dispatch(const LayerNormShape& shape, runtime::DType dtype, std::initializer_list<const void*> arrays,
              const F& f) {
  cuda::with_rows(dtype, shape.channels, arrays, [&](auto type, auto width) {
    const Geometry g = geometry(shape, width());
    if (g.vectors == 1) {
      f(type, std::integral_constant<int, 1>{}, width, g.threads);
    } else if (g.vectors == 2) {
      f(type, std::integral_constant<int, 2>{}, width, g.threads);
    } else if (g.vectors <= 4) {
      f(type, std::integral_constant<int, 4>{}, width, g.threads);
    } else if constexpr (width() <= 4) {
      f(type, std::integral_constant<int, 8>{}, width, g.threads);
    } else {
      fail(ErrorCode::internal, "layer norm of {} channels: a GPU's kernel takes {} of {}", shape.channels,
           32 * most_threads, to_string(dtype));
    }
  });
}

}  // namespace

void layer_norm_forward_cuda(runtime::StreamView stream, const LayerNormShape& shape, runtime::DType dtype,
                             const LayerNormForward& arrays) {
  if (shape.rows == 0) return;
  dispatch(shape, dtype, {arrays.y, arrays.x, arrays.weight, arrays.bias, arrays.branch, arrays.sum},
           [&](auto type, auto vectors, auto width, dim3 threads) {
             runtime::cuda::launch("layer_norm_forward", runtime::cuda::native(stream),
                                   {cuda::blocks_of(shape.rows, threads.y), threads},
                                   forward_kernel<decltype(type), vectors(), width()>, arrays, shape.rows,
                                   static_cast<int>(shape.channels));
           });
}

void layer_norm_again_cuda(runtime::StreamView stream, const LayerNormShape& shape, runtime::DType dtype, void* y,
                           const float* mean, const float* rstd, const void* x, const void* weight,
                           const void* bias) {
  if (shape.rows == 0) return;
  dispatch(shape, dtype, {y, x, weight, bias}, [&](auto type, auto vectors, auto width, dim3 threads) {
    using T = decltype(type);
    runtime::cuda::launch("layer_norm_again", runtime::cuda::native(stream),
                          {cuda::blocks_of(shape.rows, threads.y), threads}, again_kernel<T, vectors(), width()>,
                          static_cast<T*>(y), mean, rstd, static_cast<const T*>(x), static_cast<const T*>(weight),
                          static_cast<const T*>(bias), shape.rows, static_cast<int>(shape.channels));
  });
}

std::size_t layer_norm_cuda_workspace_bytes(const LayerNormShape& shape) {
  return cuda::ceil_divide(shape.rows, rows_per_block) * 2 * shape.channels * sizeof(float);
}

void layer_norm_backward_cuda(runtime::StreamView stream, const LayerNormShape& shape, runtime::DType dtype,
                              const LayerNormBackward& arrays) {
  const cudaStream_t queue = runtime::cuda::native(stream);
  const std::size_t columns = 2 * shape.channels;
  const unsigned blocks = cuda::blocks_of(shape.rows, rows_per_block);
  auto* const partial = reinterpret_cast<float*>(arrays.workspace);
  if (blocks != 0) {
    dispatch(shape, dtype, {arrays.dx, arrays.dy, arrays.x, arrays.weight, arrays.residual, arrays.workspace},
             [&](auto type, auto vectors, auto width, dim3 threads) {
               runtime::cuda::launch("layer_norm_backward", queue,
                                     {blocks, threads, (threads.y - 1) * columns * sizeof(float)},
                                     backward_kernel<decltype(type), vectors(), width()>, arrays, partial,
                                     shape.rows, static_cast<int>(shape.channels));
             });
  }
  runtime::cuda::launch("layer_norm_backward's sums", queue,
                        {cuda::blocks_of(columns, sum_columns), dim3(sum_columns, sum_rows)}, sum_kernel,
                        arrays.sums, partial, blocks, columns);
}

void store_gradient_cuda(runtime::StreamView stream, void* gradient, runtime::DType dtype, const float* sums,
                         std::size_t n, bool accumulate) {
  if (n == 0) return;
  cuda::with_type(dtype, [&](auto type) {
    using T = decltype(type);
    runtime::cuda::launch("store_gradient", runtime::cuda::native(stream),
                          {cuda::blocks_of(n, elementwise_threads), elementwise_threads}, store_kernel<T>,
                          static_cast<T*>(gradient), sums, n, accumulate);
  });
}

}  // namespace ranvier::models

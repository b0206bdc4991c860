// Rows in registers: norm_rows.cuh.
#include "models/ops/layer_norm.hpp"

#include "models/ops/cuda_vector.cuh"
#include "models/ops/norm_rows.cuh"
#include "runtime/device/cuda_native.hpp"
#include "runtime/kernels/launch.cuh"

namespace ranvier::models {
namespace {

constexpr unsigned elementwise_threads = 256;

/// Intrinsics fix the rounding, so that forward and layer_norm_again() agree.
__device__ float normalise(float x, float mean, float rstd, float weight, float bias) {
  return __fmaf_rn(__fmul_rn(__fsub_rn(x, mean), rstd), weight, bias);
}

template <typename T, int vectors, int width>
__device__ void write_normal(T* y, const cuda::Row<vectors, width>& x, float mean, float rstd, const T* weight,
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
__global__ void __launch_bounds__(cuda::max_row_threads)
    forward_kernel(LayerNormForward arrays, std::size_t rows, int channels, float epsilon) {
  __shared__ cuda::RowSums sums;
  const std::size_t row = std::size_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const int present = row < rows ? channels : 0;  // rows past the end take part in the barriers of the sums
  const std::size_t first = row * static_cast<std::size_t>(channels);

  cuda::Row<vectors, width> x;
  x.load(static_cast<const T*>(arrays.x) + first, present);
  if (arrays.branch != nullptr) {
    cuda::Row<vectors, width> branch;
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
  const float rstd = 1.0f / sqrtf(sums.sum(squares, 0, 1).x * scale + epsilon);
  if (present == 0) return;
  if (threadIdx.x == 0) {
    arrays.mean[row] = mean;
    arrays.rstd[row] = rstd;
  }
  write_normal(static_cast<T*>(arrays.y) + first, x, mean, rstd, static_cast<const T*>(arrays.weight),
               static_cast<const T*>(arrays.bias), channels);
}

template <typename T, int vectors, int width>
__global__ void __launch_bounds__(cuda::max_row_threads)
    again_kernel(T* y, const float* mean, const float* rstd, const T* x, const T* weight, const T* bias,
                 std::size_t rows, int channels) {
  const std::size_t row = std::size_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (row >= rows) return;
  cuda::Row<vectors, width> values;
  values.load(x + row * static_cast<std::size_t>(channels), channels);
  write_normal(y + row * static_cast<std::size_t>(channels), values, mean[row], rstd[row], weight, bias, channels);
}

/// dx of layer_norm_block_rows rows, and their column sums to partial[block][2, C].
template <typename T, int vectors, int width>
__global__ void __launch_bounds__(cuda::max_row_threads)
    backward_kernel(LayerNormBackward arrays, float* partial, std::size_t rows, int channels) {
  __shared__ cuda::RowSums sums;
  float* const others =
      runtime::cuda::block_memory<float>();  // [blockDim.y - 1][2, C]: column sums of all threadIdx.y but 0

  cuda::Row<vectors, width> weight, of_weight{}, of_bias{};
  weight.load(static_cast<const T*>(arrays.weight), channels);
  const float scale = 1.0f / static_cast<float>(channels);
  for (unsigned turn = 0; turn * blockDim.y < layer_norm_block_rows; ++turn) {
    const std::size_t row = std::size_t{blockIdx.x} * layer_norm_block_rows + turn * blockDim.y + threadIdx.y;
    const bool is_there = row < rows;
    const int present = is_there ? channels : 0;
    const std::size_t first = row * static_cast<std::size_t>(channels);
    cuda::Row<vectors, width> x, dy;
    x.load(static_cast<const T*>(arrays.x) + first, present);
    dy.load(static_cast<const T*>(arrays.dy) + first, present);
    const float mean = is_there ? arrays.mean[row] : 0.0f, rstd = is_there ? arrays.rstd[row] : 0.0f;

    float total = 0, product = 0;
#pragma unroll
    for (int v = 0; v < vectors; ++v)
#pragma unroll
      for (int i = 0; i < width; ++i) {
        const float gradient = dy.at[v][i];  // zero past the end
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
      cuda::Row<vectors, width> residual;
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
    cuda::Row<vectors, width> more;
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

template <typename T>
__global__ void __launch_bounds__(elementwise_threads)
    store_kernel(T* gradient, const float* sums, std::size_t n, bool accumulate) {
  const std::size_t i = std::size_t{blockIdx.x} * elementwise_threads + threadIdx.x;
  if (i < n) gradient[i] = cuda::from_float<T>(accumulate ? cuda::to_float(gradient[i]) + sums[i] : sums[i]);
}

}  // namespace

void layer_norm_forward_cuda(runtime::StreamView stream, const LayerNormShape& shape, runtime::DType dtype,
                             const LayerNormForward& arrays) {
  if (shape.rows == 0) return;
  cuda::with_norm_rows(shape.channels, shape.channels, dtype,
                       {arrays.y, arrays.x, arrays.weight, arrays.bias, arrays.branch, arrays.sum},
                       [&](auto type, auto vectors, auto width, dim3 threads) {
                         runtime::cuda::launch("layer_norm_forward", runtime::cuda::native(stream),
                                               {cuda::blocks_of(shape.rows, threads.y), threads},
                                               forward_kernel<decltype(type), vectors(), width()>, arrays,
                                               shape.rows, static_cast<int>(shape.channels), shape.epsilon);
                       });
}

void layer_norm_again_cuda(runtime::StreamView stream, const LayerNormShape& shape, runtime::DType dtype, void* y,
                           const float* mean, const float* rstd, const void* x, const void* weight,
                           const void* bias) {
  if (shape.rows == 0) return;
  cuda::with_norm_rows(shape.channels, shape.channels, dtype, {y, x, weight, bias},
                       [&](auto type, auto vectors, auto width, dim3 threads) {
                         using T = decltype(type);
                         runtime::cuda::launch("layer_norm_again", runtime::cuda::native(stream),
                                               {cuda::blocks_of(shape.rows, threads.y), threads},
                                               again_kernel<T, vectors(), width()>, static_cast<T*>(y), mean, rstd,
                                               static_cast<const T*>(x), static_cast<const T*>(weight),
                                               static_cast<const T*>(bias), shape.rows,
                                               static_cast<int>(shape.channels));
                       });
}

void layer_norm_backward_cuda(runtime::StreamView stream, const LayerNormShape& shape, runtime::DType dtype,
                              const LayerNormBackward& arrays) {
  const cudaStream_t queue = runtime::cuda::native(stream);
  const std::size_t columns = 2 * shape.channels;
  const unsigned blocks = cuda::blocks_of(shape.rows, layer_norm_block_rows);
  auto* const partial = reinterpret_cast<float*>(arrays.workspace);
  if (blocks != 0) {
    cuda::with_norm_rows(shape.channels, shape.channels, dtype,
                         {arrays.dx, arrays.dy, arrays.x, arrays.weight, arrays.residual, arrays.workspace},
                         [&](auto type, auto vectors, auto width, dim3 threads) {
                           runtime::cuda::launch("layer_norm_backward", queue,
                                                 {blocks, threads, (threads.y - 1) * columns * sizeof(float)},
                                                 backward_kernel<decltype(type), vectors(), width()>, arrays,
                                                 partial, shape.rows, static_cast<int>(shape.channels));
                         });
  }
  cuda::sum_blocks("layer_norm_backward's sums", queue, arrays.sums, partial, blocks, columns);
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

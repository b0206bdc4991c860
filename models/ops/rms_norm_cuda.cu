// Rows in registers: norm_rows.cuh; each of its rows is a group here.
#include "models/ops/rms_norm.hpp"

#include "models/ops/cuda_vector.cuh"
#include "models/ops/norm_rows.cuh"
#include "runtime/device/cuda_native.hpp"
#include "runtime/kernels/launch.cuh"

#include <numeric>

namespace ranvier::models {
namespace {

/// Offsets of group i of all rows.
struct Groups {
  explicit Groups(const RmsNormShape& shape)
      : count(shape.rows * shape.groups),
        per_row(shape.groups),
        x_row(shape.x_row()),
        y_row(shape.y_row()),
        channels(static_cast<int>(shape.channels)) {}

  __device__ std::size_t x(std::size_t i) const { return begin(i, x_row); }
  __device__ std::size_t y(std::size_t i) const { return begin(i, y_row); }
  __device__ std::size_t begin(std::size_t i, std::size_t stride) const {
    return i / per_row * stride + i % per_row * static_cast<std::size_t>(channels);
  }

  std::size_t count, per_row, x_row, y_row;
  int channels;
};

/// Intrinsics fix the rounding, so that forward and rms_norm_again() agree.
template <typename T, int vectors, int width>
__device__ void write_normal(T* y, const cuda::Row<vectors, width>& x, float rstd, const T* weight, int channels) {
#pragma unroll
  for (int v = 0; v < vectors; ++v) {
    const int c = x.channel(v);
    if (c >= channels) break;
    float w[width], result[width];
    cuda::load(w, weight + c);
#pragma unroll
    for (int i = 0; i < width; ++i) result[i] = __fmul_rn(__fmul_rn(x.at[v][i], rstd), w[i]);
    cuda::store(y + c, result);
  }
}

template <typename T, int vectors, int width>
__global__ void __launch_bounds__(cuda::max_row_threads)
    forward_kernel(RmsNormForward arrays, Groups groups, float epsilon) {
  __shared__ cuda::RowSums sums;
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const int present = i < groups.count ? groups.channels : 0;  // groups past the end join the barrier of the sums
  const std::size_t first = groups.x(i);

  cuda::Row<vectors, width> x;
  x.load(static_cast<const T*>(arrays.x) + first, present);
  if (arrays.branch != nullptr) {
    cuda::Row<vectors, width> branch;
    branch.load(static_cast<const T*>(arrays.branch) + first, present);
#pragma unroll
    for (int v = 0; v < vectors; ++v)
#pragma unroll
      for (int e = 0; e < width; ++e)
        x.at[v][e] = cuda::to_float(cuda::from_float<T>(x.at[v][e] + branch.at[v][e]));
    x.store(static_cast<T*>(arrays.sum) + first, present);
  }

  float squares = 0;
#pragma unroll
  for (int v = 0; v < vectors; ++v)
#pragma unroll
    for (int e = 0; e < width; ++e) squares += x.at[v][e] * x.at[v][e];
  const float mean = sums.sum(squares, 0, 0).x / static_cast<float>(groups.channels);
  const float rstd = 1.0f / sqrtf(mean + epsilon);
  if (present == 0) return;
  if (threadIdx.x == 0) arrays.rstd[i] = rstd;
  write_normal(static_cast<T*>(arrays.y) + groups.y(i), x, rstd, static_cast<const T*>(arrays.weight),
               groups.channels);
}

template <typename T, int vectors, int width>
__global__ void __launch_bounds__(cuda::max_row_threads)
    again_kernel(T* y, const float* rstd, const T* x, const T* weight, Groups groups) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (i >= groups.count) return;
  cuda::Row<vectors, width> values;
  values.load(x + groups.x(i), groups.channels);
  write_normal(y + groups.y(i), values, rstd[i], weight, groups.channels);
}

/// dx of rms_norm_block_groups groups, and their column sums to partial[block][C].
template <typename T, int vectors, int width>
__global__ void __launch_bounds__(cuda::max_row_threads)
    backward_kernel(RmsNormBackward arrays, float* partial, Groups groups) {
  __shared__ cuda::RowSums sums;
  float* const others = runtime::cuda::block_memory<float>();  // [blockDim.y - 1][C]: column sums, threadIdx.y > 0
  const int channels = groups.channels;

  cuda::Row<vectors, width> weight, of_weight{};
  weight.load(static_cast<const T*>(arrays.weight), channels);
  const float scale = 1.0f / static_cast<float>(channels);
  for (unsigned turn = 0; turn * blockDim.y < rms_norm_block_groups; ++turn) {
    const std::size_t i = std::size_t{blockIdx.x} * rms_norm_block_groups + turn * blockDim.y + threadIdx.y;
    const bool is_there = i < groups.count;
    const int present = is_there ? channels : 0;
    cuda::Row<vectors, width> x, dy;
    x.load(static_cast<const T*>(arrays.x) + groups.x(i), present);
    dy.load(static_cast<const T*>(arrays.dy) + groups.y(i), present);
    const float rstd = is_there ? arrays.rstd[i] : 0.0f;

    float product = 0;
#pragma unroll
    for (int v = 0; v < vectors; ++v)
#pragma unroll
      for (int e = 0; e < width; ++e) {
        const float gradient = dy.at[v][e];  // zero past the end
        const float normal = x.at[v][e] * rstd;
        const float weighted = gradient * weight.at[v][e];
        product += weighted * normal;
        of_weight.at[v][e] += gradient * normal;
        x.at[v][e] = normal;
        dy.at[v][e] = weighted;
      }
    const float mean_product = sums.sum(product, 0, static_cast<int>(turn % 2)).x * scale;
    if (arrays.residual != nullptr) {
      cuda::Row<vectors, width> residual;
      residual.load(static_cast<const T*>(arrays.residual) + groups.y(i), present);
#pragma unroll
      for (int v = 0; v < vectors; ++v)
#pragma unroll
        for (int e = 0; e < width; ++e)
          dy.at[v][e] = (dy.at[v][e] - x.at[v][e] * mean_product) * rstd + residual.at[v][e];
    } else {
#pragma unroll
      for (int v = 0; v < vectors; ++v)
#pragma unroll
        for (int e = 0; e < width; ++e) dy.at[v][e] = (dy.at[v][e] - x.at[v][e] * mean_product) * rstd;
    }
    dy.store(static_cast<T*>(arrays.dx) + groups.y(i), present);
  }

  if (threadIdx.y != 0) of_weight.store(others + std::size_t{threadIdx.y - 1} * channels, channels);
  __syncthreads();
  if (threadIdx.y != 0) return;
  for (unsigned y = 1; y < blockDim.y; ++y) {
    cuda::Row<vectors, width> more;
    more.load(others + std::size_t{y - 1} * channels, channels);
#pragma unroll
    for (int v = 0; v < vectors; ++v)
#pragma unroll
      for (int e = 0; e < width; ++e) of_weight.at[v][e] += more.at[v][e];
  }
  of_weight.store(partial + std::size_t{blockIdx.x} * channels, channels);
}

/// Same as cuda::with_norm_rows(), for a shape.
template <typename F>
void with_groups(const RmsNormShape& shape, runtime::DType dtype, std::initializer_list<const void*> arrays,
                 const F& f) {
  const std::size_t step = std::gcd(shape.channels, std::gcd(shape.x_row(), shape.y_row()));
  cuda::with_norm_rows(shape.channels, step, dtype, arrays, f);
}

}  // namespace

void rms_norm_forward_cuda(runtime::StreamView stream, const RmsNormShape& shape, runtime::DType dtype,
                           const RmsNormForward& arrays) {
  const Groups groups(shape);
  if (groups.count == 0) return;
  with_groups(shape, dtype, {arrays.y, arrays.x, arrays.weight, arrays.branch, arrays.sum},
              [&](auto type, auto vectors, auto width, dim3 threads) {
                runtime::cuda::launch("rms_norm_forward", runtime::cuda::native(stream),
                                      {cuda::blocks_of(groups.count, threads.y), threads},
                                      forward_kernel<decltype(type), vectors(), width()>, arrays, groups,
                                      shape.epsilon);
              });
}

void rms_norm_again_cuda(runtime::StreamView stream, const RmsNormShape& shape, runtime::DType dtype, void* y,
                         const float* rstd, const void* x, const void* weight) {
  const Groups groups(shape);
  if (groups.count == 0) return;
  with_groups(shape, dtype, {y, x, weight}, [&](auto type, auto vectors, auto width, dim3 threads) {
    using T = decltype(type);
    runtime::cuda::launch("rms_norm_again", runtime::cuda::native(stream),
                          {cuda::blocks_of(groups.count, threads.y), threads}, again_kernel<T, vectors(), width()>,
                          static_cast<T*>(y), rstd, static_cast<const T*>(x), static_cast<const T*>(weight),
                          groups);
  });
}

void rms_norm_backward_cuda(runtime::StreamView stream, const RmsNormShape& shape, runtime::DType dtype,
                            const RmsNormBackward& arrays) {
  const Groups groups(shape);
  const cudaStream_t queue = runtime::cuda::native(stream);
  const unsigned blocks = cuda::blocks_of(groups.count, rms_norm_block_groups);
  auto* const partial = reinterpret_cast<float*>(arrays.workspace);
  if (blocks != 0) {
    with_groups(shape, dtype, {arrays.dx, arrays.dy, arrays.x, arrays.weight, arrays.residual, arrays.workspace},
                [&](auto type, auto vectors, auto width, dim3 threads) {
                  runtime::cuda::launch("rms_norm_backward", queue,
                                        {blocks, threads, (threads.y - 1) * shape.channels * sizeof(float)},
                                        backward_kernel<decltype(type), vectors(), width()>, arrays, partial,
                                        groups);
                });
  }
  cuda::sum_blocks("rms_norm_backward's sums", queue, arrays.weight_sums, partial, blocks, shape.channels);
}

}  // namespace ranvier::models

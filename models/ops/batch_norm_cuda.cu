// Sums: a block of 32 × 8 threads sums 32 channels of batch_norm_block_rows rows; a second kernel adds a channel's
// blocks in order. Other kernels use one thread per written value.
#include "models/ops/batch_norm.hpp"

#include "models/ops/cuda_vector.cuh"

namespace ranvier::models {
namespace {

constexpr int threads = 256;
constexpr unsigned sum_channels = 32, sum_rows = 8;

/// The value, or the square of its difference from the mean.
template <typename T>
struct Moment {
  static constexpr int sums = 1;

  __device__ void add(float (&total)[sums], std::size_t row, std::size_t c) const {
    const float value = cuda::to_float(x[row * channels + c]);
    const float difference = mean == nullptr ? value : value - mean[c];
    total[0] += mean == nullptr ? value : difference * difference;
  }

  const T* x;
  const float* mean;  ///< null: the value
  std::size_t channels;
};

template <typename T>
struct Norm {
  Norm(const BatchNormShape& shape, const BatchNormValues& values)
      : x(static_cast<const T*>(values.x)),
        addend(static_cast<const T*>(values.addend)),
        weight(static_cast<const T*>(values.weight)),
        bias(static_cast<const T*>(values.bias)),
        statistics(values.statistics),
        channels(shape.channels),
        relu(values.relu) {}

  __device__ float normal(std::size_t at, std::size_t c) const {
    return __fmul_rn(__fsub_rn(cuda::to_float(x[at]), statistics[c]), statistics[2 * channels + c]);
  }
  /// ReLU's input.
  __device__ float sum(std::size_t at, std::size_t c, float normal) const {
    const float scaled = __fmaf_rn(normal, cuda::to_float(weight[c]), cuda::to_float(bias[c]));
    return addend == nullptr ? scaled : __fadd_rn(scaled, cuda::to_float(addend[at]));
  }

  const T *x, *addend, *weight, *bias;
  const float* statistics;
  std::size_t channels;
  bool relu;
};

/// Gradients of weight and bias.
template <typename T>
struct Gradients {
  static constexpr int sums = 2;

  /// dy where ReLU's input is positive, else 0.
  __device__ float gradient(std::size_t at, std::size_t c, float normal) const {
    return norm.relu && norm.sum(at, c, normal) <= 0.0f ? 0.0f : cuda::to_float(dy[at]);
  }
  __device__ void add(float (&total)[sums], std::size_t row, std::size_t c) const {
    const std::size_t at = row * norm.channels + c;
    const float normal = norm.normal(at, c), passed = gradient(at, c, normal);
    total[0] += passed * normal;
    total[1] += passed;
  }

  Norm<T> norm;
  const T* dy;
};

template <typename Values>
__global__ void __launch_bounds__(sum_channels* sum_rows)
    sum_kernel(float* partial, Values values, std::size_t rows, std::size_t channels) {
  __shared__ float of_rows[sum_rows][Values::sums][sum_channels];
  const std::size_t c = std::size_t{blockIdx.y} * sum_channels + threadIdx.x;
  const std::size_t begin = std::size_t{blockIdx.x} * batch_norm_block_rows;
  const std::size_t end = begin + batch_norm_block_rows < rows ? begin + batch_norm_block_rows : rows;
  float total[Values::sums] = {};
  for (std::size_t row = begin + threadIdx.y; row < end && c < channels; row += sum_rows) values.add(total, row, c);
  for (int i = 0; i < Values::sums; ++i) of_rows[threadIdx.y][i][threadIdx.x] = total[i];
  __syncthreads();
  if (threadIdx.y != 0 || c >= channels) return;
  for (int i = 0; i < Values::sums; ++i) {
    for (unsigned y = 1; y < sum_rows; ++y) total[i] += of_rows[y][i][threadIdx.x];
    partial[(blockIdx.x * std::size_t{Values::sums} + static_cast<std::size_t>(i)) * channels + c] = total[i];
  }
}

/// means[width] = sums over the blocks, divided by `rows`; with `rstd` they are variances.
__global__ void __launch_bounds__(threads)
    mean_kernel(float* means, float* rstd, const float* partial, std::size_t blocks, std::size_t width, double rows,
                float epsilon) {
  const std::size_t i = std::size_t{blockIdx.x} * threads + threadIdx.x;
  if (i >= width) return;
  double total = 0;
  for (std::size_t block = 0; block < blocks; ++block) total += static_cast<double>(partial[block * width + i]);
  means[i] = static_cast<float>(total / rows);
  if (rstd != nullptr) rstd[i] = __fdiv_rn(1.0f, __fsqrt_rn(means[i] + epsilon));
}

template <typename T>
__global__ void __launch_bounds__(threads)
    fixed_kernel(float* statistics, const T* mean, const T* variance, std::size_t channels, float epsilon) {
  const std::size_t c = std::size_t{blockIdx.x} * threads + threadIdx.x;
  if (c >= channels) return;
  const float value = cuda::to_float(variance[c]);
  statistics[c] = cuda::to_float(mean[c]);
  statistics[channels + c] = value;
  statistics[2 * channels + c] = __fdiv_rn(1.0f, __fsqrt_rn(value + epsilon));
}

template <typename T>
__global__ void __launch_bounds__(threads) forward_kernel(T* y, Norm<T> norm, std::size_t n) {
  const std::size_t at = std::size_t{blockIdx.x} * threads + threadIdx.x;
  if (at >= n) return;
  const std::size_t c = at % norm.channels;
  const float sum = norm.sum(at, c, norm.normal(at, c));
  y[at] = cuda::from_float<T>(norm.relu && sum < 0.0f ? 0.0f : sum);
}

/// `part`: factor of the sums in each row's gradient: 1/N, or 0 if statistics are fixed.
template <typename T>
__global__ void __launch_bounds__(threads)
    backward_kernel(T* dx, T* d_addend, const float* sums, Gradients<T> gradients, float part, std::size_t n) {
  const std::size_t at = std::size_t{blockIdx.x} * threads + threadIdx.x;
  if (at >= n) return;
  const Norm<T>& norm = gradients.norm;
  const std::size_t C = norm.channels, c = at % C;
  const float normal = norm.normal(at, c), gradient = gradients.gradient(at, c, normal);
  if (d_addend != nullptr) d_addend[at] = cuda::from_float<T>(gradient);
  const float rest = gradient - sums[C + c] * part - normal * (sums[c] * part);
  dx[at] = cuda::from_float<T>(rest * norm.statistics[2 * C + c] * cuda::to_float(norm.weight[c]));
}

unsigned row_blocks(const BatchNormShape& shape) { return cuda::blocks_of(shape.rows, batch_norm_block_rows); }

template <typename Values>
void sum_blocks(runtime::StreamView stream, const BatchNormShape& shape, float* partial, const Values& values) {
  const dim3 blocks(row_blocks(shape), cuda::blocks_down(shape.channels, sum_channels));
  cuda::launch("batch_norm's sums", stream, {blocks, dim3(sum_channels, sum_rows)}, sum_kernel<Values>, partial,
               values, shape.rows, shape.channels);
}

}  // namespace

void batch_norm_statistics_cuda(runtime::StreamView stream, const BatchNormShape& shape, runtime::DType dtype,
                                float* statistics, const void* x, std::byte* workspace) {
  const std::size_t C = shape.channels;
  if (C == 0) return;
  auto* const partial = reinterpret_cast<float*>(workspace);
  const auto finish = [&](float* mean, float* rstd) {
    cuda::launch_each<threads>("batch_norm's statistics", stream, C, mean_kernel, mean, rstd, partial,
                               std::size_t{row_blocks(shape)}, C, static_cast<double>(shape.rows), shape.epsilon);
  };
  cuda::with_type(dtype, [&]<typename T>(T) {
    const T* const from = static_cast<const T*>(x);
    sum_blocks(stream, shape, partial, Moment<T>{from, nullptr, C});
    finish(statistics, nullptr);
    sum_blocks(stream, shape, partial, Moment<T>{from, statistics, C});
    finish(statistics + C, statistics + 2 * C);
  });
}

void batch_norm_fixed_statistics_cuda(runtime::StreamView stream, const BatchNormShape& shape, runtime::DType dtype,
                                      float* statistics, const void* mean, const void* variance) {
  cuda::with_type(dtype, [&]<typename T>(T) {
    cuda::launch_each<threads>("batch_norm_fixed_statistics", stream, shape.channels, fixed_kernel<T>, statistics,
                               mean, variance, shape.channels, shape.epsilon);
  });
}

void batch_norm_forward_cuda(runtime::StreamView stream, const BatchNormShape& shape, runtime::DType dtype, void* y,
                             const BatchNormValues& values) {
  const std::size_t n = shape.rows * shape.channels;
  cuda::with_type(dtype, [&]<typename T>(T) {
    cuda::launch_each<threads>("batch_norm_forward", stream, n, forward_kernel<T>, y, Norm<T>(shape, values), n);
  });
}

void batch_norm_backward_cuda(runtime::StreamView stream, const BatchNormShape& shape, runtime::DType dtype,
                              const BatchNormBackward& arrays, const BatchNormValues& values) {
  const std::size_t n = shape.rows * shape.channels, width = 2 * shape.channels;
  if (n == 0) return;
  auto* const partial = reinterpret_cast<float*>(arrays.workspace);
  const float part = arrays.fixed ? 0.0f : 1.0f / static_cast<float>(shape.rows);
  cuda::with_type(dtype, [&]<typename T>(T) {
    const Gradients<T> gradients{Norm<T>(shape, values), static_cast<const T*>(arrays.dy)};
    sum_blocks(stream, shape, partial, gradients);
    cuda::launch_each<threads>("batch_norm_backward's sums", stream, width, mean_kernel, arrays.sums, nullptr,
                               partial, std::size_t{row_blocks(shape)}, width, 1.0, 0.0f);
    cuda::launch_each<threads>("batch_norm_backward", stream, n, backward_kernel<T>, arrays.dx, arrays.d_addend,
                               arrays.sums, gradients, part, n);
  });
}

}  // namespace ranvier::models

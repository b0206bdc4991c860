// A block computes a row. Its threads keep a running maximum and the sum of exponentials relative to it (Milakov and
// Gimelshein 2018). The second read, for the gradient, hits the L2 cache.
#include "models/ops/cross_entropy.hpp"

#include "models/ops/bad_token.hpp"
#include "models/ops/bad_token_cuda.hpp"
#include "models/ops/cuda_vector.cuh"

#include <cfloat>

namespace ranvier::models {
namespace {

constexpr int threads = 1024;
constexpr int warps = threads / 32;

/// e^(x - max)
__device__ float exponential(float x, float max) { return exp2f((x - max) * cuda::log2_e); }

/// Σ e^(x - max) of some elements. The maximum starts at the lowest float, because -∞ - (-∞) is NaN.
struct RunningSum {
  float max = -FLT_MAX;
  float sum = 0;

  template <int width>
  __device__ void add(const float (&x)[width]) {
    float greatest = max;
#pragma unroll
    for (int i = 0; i < width; ++i) greatest = fmaxf(greatest, x[i]);
    if (greatest > max) {
      sum *= exponential(max, greatest);
      max = greatest;
    }
#pragma unroll
    for (int i = 0; i < width; ++i) sum += exponential(x[i], max);
  }
};

struct Total {
  float max;
  double sum;
};

/// Sum over all threads of the block, identical in each.
__device__ Total total_of_block(RunningSum own) {
  __shared__ float maxima[warps];
  __shared__ double sums[warps];
  __shared__ Total total;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const float warp_max = cuda::warp_max(own.max);
  const double warp_sum = cuda::warp_sum(static_cast<double>(own.sum * exponential(own.max, warp_max)));
  if (lane == 0) {
    maxima[warp] = warp_max;
    sums[warp] = warp_sum;
  }
  __syncthreads();
  if (warp == 0) {
    static_assert(warps == 32, "a lane for each warp");
    const float max = cuda::warp_max(maxima[lane]);
    const double sum = cuda::warp_sum(sums[lane] * static_cast<double>(exponential(maxima[lane], max)));
    if (lane == 0) total = {max, sum};
  }
  __syncthreads();
  return total;
}

/// x[begin … begin + width), with -∞ from V, which adds nothing.
template <int width, typename T>
__device__ void load_logits(float (&x)[width], const T* logits, std::size_t begin, std::size_t V) {
  cuda::load(x, logits + begin);
#pragma unroll
  for (int i = 0; i < width; ++i)
    if (begin + i >= V) x[i] = -INFINITY;
}

template <int width, typename T>
__global__ void __launch_bounds__(threads)
    row_kernel(CrossEntropyShape shape, CrossEntropyArrays arrays, volatile unsigned long long* bad_place) {
  const std::size_t row = blockIdx.x, V = shape.vocab_size;
  const std::int32_t target = arrays.targets[row];
  T* const logits = static_cast<T*>(arrays.logits) + row * shape.stride;
  if (target == no_target) {
    if (threadIdx.x == 0) arrays.row_losses[row] = 0;
    if (!arrays.gradient) return;
    const float zeros[width] = {};
    for (std::size_t i = std::size_t{threadIdx.x} * width; i < shape.stride; i += std::size_t{threads} * width)
      cuda::store(logits + i, zeros);
    return;
  }
  if (target < 0 || static_cast<std::size_t>(target) >= V) {
    if (threadIdx.x == 0) {
      *bad_place = cuda::bad_token(row, target);
      arrays.row_losses[row] = 0;
    }
    return;
  }
  const float at_target = cuda::to_float(logits[target]);  // read before any thread writes
  RunningSum own;
  for (std::size_t i = std::size_t{threadIdx.x} * width; i < V; i += std::size_t{threads} * width) {
    float x[width];
    load_logits(x, logits, i, V);
    own.add(x);
  }
  const Total total = total_of_block(own);
  if (threadIdx.x == 0)
    arrays.row_losses[row] = log(total.sum) + (static_cast<double>(total.max) - static_cast<double>(at_target));
  if (!arrays.gradient) return;

  const auto probability = static_cast<float>(1.0 / total.sum);
  const float scale = probability * arrays.gradient_factor;
  for (std::size_t i = std::size_t{threadIdx.x} * width; i < shape.stride; i += std::size_t{threads} * width) {
    float x[width];
    load_logits(x, logits, i, V);
#pragma unroll
    for (int e = 0; e < width; ++e) {
      const float value = exponential(x[e], total.max);  // 0 for -∞, so that the padding becomes zero
      x[e] = value * scale;
      if (i + e == static_cast<std::size_t>(target)) x[e] = (value * probability - 1.0f) * arrays.gradient_factor;
      if (i + e >= V) x[e] = 0;
    }
    cuda::store(logits + i, x);
  }
}

/// *loss = factor · Σ losses[rows], in an order that depends on `rows` only.
__global__ void __launch_bounds__(threads)
    sum_kernel(double* loss, double factor, const double* losses, std::size_t rows) {
  __shared__ double sums[warps];
  double total = 0;
  for (std::size_t row = threadIdx.x; row < rows; row += threads) total += losses[row];
  total = cuda::warp_sum(total);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = total;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  total = cuda::warp_sum(sums[threadIdx.x]);
  if (threadIdx.x == 0) *loss = factor * total;
}

// One block with a warp per row, because there are few rows: the samples of a microbatch.
template <typename T>
__global__ void __launch_bounds__(threads)
    correct_kernel(CrossEntropyShape shape, double* correct, const T* logits, const std::int32_t* targets) {
  __shared__ float counts[warps];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  float count = 0;
  for (std::size_t row = static_cast<std::size_t>(warp); row < shape.rows; row += warps) {
    const std::int32_t target = targets[row];
    if (target < 0 || static_cast<std::size_t>(target) >= shape.vocab_size)
      continue;  // the same for the complete warp
    const T* const own = logits + row * shape.stride;
    const float at_target = cuda::to_float(own[target]);
    float misses = 0;
    for (std::size_t i = static_cast<std::size_t>(lane); i < shape.vocab_size; i += 32) {
      const float other = cuda::to_float(own[i]);
      const bool below = i < static_cast<std::size_t>(target) ? other < at_target : other <= at_target;
      if (!below) misses = 1;
    }
    if (cuda::warp_max(misses) == 0) ++count;
  }
  if (lane == 0) counts[warp] = count;
  __syncthreads();
  if (warp != 0) return;
  static_assert(warps == 32, "a lane for each warp");
  const double total = cuda::warp_sum(static_cast<double>(counts[lane]));
  if (lane == 0) *correct = total;
}

}  // namespace

void cross_entropy_cuda(runtime::StreamView stream, const CrossEntropyShape& shape, runtime::DType dtype,
                        const CrossEntropyArrays& arrays) {
  if (shape.rows != 0) {
    auto* const bad_place = cuda::bad_token_place(cuda::TokenUse::target);
    cuda::with_rows(dtype, shape.stride, {arrays.logits}, [&]<typename T>(T, auto width) {
      cuda::launch("cross_entropy", stream, {cuda::blocks_of(shape.rows, 1), threads}, row_kernel<width(), T>,
                   shape, arrays, bad_place);
    });
  }
  cuda::launch("cross_entropy's sum", stream, {1, threads}, sum_kernel, arrays.loss, arrays.loss_factor,
               arrays.row_losses, shape.rows);
  cuda::expect_no_bad_token(stream, cuda::TokenUse::target,
                            [vocab_size = shape.vocab_size](std::int32_t token, std::size_t index) {
                              fail_bad_target(token, index, vocab_size);
                            });
}

void count_correct_cuda(runtime::StreamView stream, const CrossEntropyShape& shape, runtime::DType dtype,
                        double* correct, const void* logits, const std::int32_t* targets) {
  cuda::with_type(dtype, [&]<typename T>(T) {
    cuda::launch("count_correct", stream, {1, threads}, correct_kernel<T>, shape, correct, logits, targets);
  });
}

}  // namespace ranvier::models

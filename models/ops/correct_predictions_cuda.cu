// One block with a warp per row, because there are few rows: the samples of a microbatch.
#include "models/ops/correct_predictions.hpp"
#include "models/ops/cuda_vector.cuh"
#include "runtime/device/cuda_native.hpp"
#include "runtime/kernels/launch.cuh"

namespace ranvier::models {
namespace {

constexpr int threads = 1024;
constexpr int warps = threads / 32;

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

void count_correct_cuda(runtime::StreamView stream, const CrossEntropyShape& shape, runtime::DType dtype,
                        double* correct, const void* logits, const std::int32_t* targets) {
  cuda::with_type(dtype, [&](auto type) {
    using T = decltype(type);
    runtime::cuda::launch("count_correct", runtime::cuda::native(stream), {1, threads}, correct_kernel<T>, shape,
                          correct, static_cast<const T*>(logits), targets);
  });
}

}  // namespace ranvier::models

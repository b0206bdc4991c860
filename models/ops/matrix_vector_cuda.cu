#include "models/ops/cuda_vector.cuh"
#include "models/ops/matmul.hpp"

namespace ranvier::models {
namespace {

constexpr int threads = 128;

/// A warp computes a row.
template <int width, typename T, typename Y>
__global__ void __launch_bounds__(threads)
    row_kernel(Y* y, const T* a, const T* x, const T* bias, std::size_t n, std::size_t k) {
  const std::size_t row = std::size_t{blockIdx.x} * (threads / 32) + threadIdx.x / 32;
  if (row >= n) return;
  const std::size_t lane = threadIdx.x % 32;
  float sum = 0;
#pragma unroll 4
  for (std::size_t p = lane * width; p < k; p += 32 * width) {
    float left[width], right[width];
    cuda::load(left, a + row * k + p);
    cuda::load(right, x + p);
#pragma unroll
    for (int i = 0; i < width; ++i) sum = fmaf(left[i], right[i], sum);
  }
  sum = cuda::warp_sum(sum);
  if (lane == 0) y[row] = cuda::from_float<Y>(bias == nullptr ? sum : sum + cuda::to_float(bias[row]));
}

}  // namespace

void matrix_vector_cuda(runtime::StreamView stream, const MatmulShape& shape, const MatmulArrays& arrays) {
  cuda::with_rows(arrays.dtype, shape.k, {arrays.a, arrays.b}, [&]<typename T>(T type, auto width) {
    const auto run = [&]<typename Y>(Y) {
      cuda::launch("matrix_vector", stream, {cuda::blocks_of(shape.n, threads / 32), threads},
                   row_kernel<width(), T, Y>, arrays.c, arrays.b, arrays.a, arrays.bias, shape.n, shape.k);
    };
    if (arrays.c_dtype == runtime::DType::f32) {
      run(float{});
    } else {
      run(type);  // the only other type that matrix_vector() accepts
    }
  });
}

}  // namespace ranvier::models

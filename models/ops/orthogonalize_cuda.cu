// One thread per written value.
#include "models/ops/cuda_vector.cuh"
#include "models/ops/orthogonalize.hpp"

namespace ranvier::models {
namespace {

constexpr int threads = 256;

template <typename T>
__global__ void __launch_bounds__(threads) divide_kernel(T* x, const float* matrix, std::size_t columns,
                                                         std::size_t stride, const double* squares, std::size_t n) {
  const std::size_t at = std::size_t{blockIdx.x} * threads + threadIdx.x;
  if (at >= n) return;
  const float sum = static_cast<float>(*squares);
  const float norm = fmaxf(__fsqrt_rn(sum), 1e-7f) + (sum - sum);  // NaN if the sum is not finite
  x[at] = cuda::from_float<T>(__fdiv_rn(matrix[at / columns * stride + at % columns], norm));
}

template <typename T>
__global__ void __launch_bounds__(threads)
    factor_kernel(T* squared, const T* a, std::size_t size, float scale, std::size_t n) {
  const std::size_t at = std::size_t{blockIdx.x} * threads + threadIdx.x;
  if (at >= n) return;
  const float sum = newton_schulz_once * cuda::to_float(a[at]) + newton_schulz_twice * cuda::to_float(squared[at]);
  squared[at] = cuda::from_float<T>(scale * (at / size == at % size ? newton_schulz_identity + sum : sum));
}

}  // namespace

void divide_by_norm_cuda(runtime::StreamView stream, void* x, runtime::DType dtype, const float* matrix,
                         std::size_t rows, std::size_t columns, std::size_t stride, const double* squares) {
  cuda::with_type(dtype, [&]<typename T>(T) {
    cuda::launch_each<threads>("divide_by_norm", stream, rows * columns, divide_kernel<T>, x, matrix, columns,
                               stride, squares, rows * columns);
  });
}

void newton_schulz_factor_cuda(runtime::StreamView stream, void* squared, const void* a, runtime::DType dtype,
                               std::size_t size, float scale) {
  cuda::with_type(dtype, [&]<typename T>(T) {
    cuda::launch_each<threads>("newton_schulz_factor", stream, size * size, factor_kernel<T>, squared, a, size,
                               scale, size * size);
  });
}

}  // namespace ranvier::models

// One thread per written value.
#include "models/ops/cuda_vector.cuh"
#include "models/ops/orthogonalize.hpp"

namespace ranvier::models {
namespace {

constexpr int threads = 256;

__global__ void __launch_bounds__(threads) divide_kernel(float* x, const float* matrix, std::size_t columns,
                                                         std::size_t stride, const double* squares, std::size_t n) {
  const std::size_t at = std::size_t{blockIdx.x} * threads + threadIdx.x;
  if (at >= n) return;
  const float sum = static_cast<float>(*squares);
  const float norm = fmaxf(__fsqrt_rn(sum), 1e-7f) + (sum - sum);  // NaN if the sum is not finite
  x[at] = __fdiv_rn(matrix[at / columns * stride + at % columns], norm);
}

__global__ void __launch_bounds__(threads)
    factor_kernel(float* squared, const float* a, std::size_t size, float scale, std::size_t n) {
  const std::size_t at = std::size_t{blockIdx.x} * threads + threadIdx.x;
  if (at >= n) return;
  const float sum = newton_schulz_once * a[at] + newton_schulz_twice * squared[at];
  squared[at] = scale * (at / size == at % size ? newton_schulz_identity + sum : sum);
}

}  // namespace

void divide_by_norm_cuda(runtime::StreamView stream, float* x, const float* matrix, std::size_t rows,
                         std::size_t columns, std::size_t stride, const double* squares) {
  cuda::launch_each<threads>("divide_by_norm", stream, rows * columns, divide_kernel, x, matrix, columns, stride,
                             squares, rows * columns);
}

void newton_schulz_factor_cuda(runtime::StreamView stream, float* squared, const float* a, std::size_t size,
                               float scale) {
  cuda::launch_each<threads>("newton_schulz_factor", stream, size * size, factor_kernel, squared, a, size, scale,
                             size * size);
}

}  // namespace ranvier::models

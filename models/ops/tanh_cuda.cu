#include "models/ops/cuda_vector.cuh"
#include "models/ops/tanh.hpp"
#include "runtime/device/cuda_native.hpp"
#include "runtime/kernels/launch.cuh"

namespace ranvier::models {
namespace {

constexpr int threads = 256;

// One thread per element: a classifier has a row per sample.
template <typename T>
__global__ void __launch_bounds__(threads) forward_kernel(T* y, const T* x, std::size_t n) {
  const std::size_t i = std::size_t{blockIdx.x} * threads + threadIdx.x;
  if (i < n) y[i] = cuda::from_float<T>(tanhf(cuda::to_float(x[i])));
}

template <typename T>
__global__ void __launch_bounds__(threads) backward_kernel(T* d, const T* y, std::size_t n) {
  const std::size_t i = std::size_t{blockIdx.x} * threads + threadIdx.x;
  if (i >= n) return;
  const float value = cuda::to_float(y[i]);
  d[i] = cuda::from_float<T>(cuda::to_float(d[i]) * (1.0f - value * value));
}

}  // namespace

void tanh_forward_cuda(runtime::StreamView stream, runtime::DType dtype, void* y, const void* x, std::size_t n) {
  if (n == 0) return;
  cuda::with_type(dtype, [&](auto type) {
    using T = decltype(type);
    runtime::cuda::launch("tanh_forward", runtime::cuda::native(stream), {cuda::blocks_of(n, threads), threads},
                          forward_kernel<T>, static_cast<T*>(y), static_cast<const T*>(x), n);
  });
}

void tanh_backward_cuda(runtime::StreamView stream, runtime::DType dtype, void* d, const void* y, std::size_t n) {
  if (n == 0) return;
  cuda::with_type(dtype, [&](auto type) {
    using T = decltype(type);
    runtime::cuda::launch("tanh_backward", runtime::cuda::native(stream), {cuda::blocks_of(n, threads), threads},
                          backward_kernel<T>, static_cast<T*>(d), static_cast<const T*>(y), n);
  });
}

}  // namespace ranvier::models

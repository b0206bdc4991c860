#include "models/ops/gelu.hpp"

#include "models/ops/cuda_vector.cuh"
#include "runtime/device/cuda_native.hpp"
#include "runtime/kernels/launch.cuh"

namespace ranvier::models {
namespace {

constexpr float twice_root = 1.5957691216f;  // 2√(2/π)
constexpr float cubic = 0.044715f;
constexpr int threads = 256;

struct Sigmoid {
  float s;
  float rest;  ///< 1 - s
};

// With u the argument of tanh, (1 + tanh u)/2 = 1/(1 + e^-2u) = s: no cancellation for large negative x. Intrinsics fix
// the rounding, so that forward and backward agree.
__device__ Sigmoid sigmoid(float x) {
  const float exponent =
      __fmul_rn(x, __fmaf_rn(-twice_root * cubic * cuda::log2_e, __fmul_rn(x, x), -twice_root * cuda::log2_e));
  const float e = exp2f(fmaxf(fminf(exponent, 125.0f), -125.0f));  // e^-2u = 2^exponent
  const float s = __frcp_rn(__fadd_rn(1.0f, e));
  return {s, __fmul_rn(e, s)};
}

/// Φ(x), without cancellation for large negative x.
__device__ float normal(float x) { return __fmul_rn(0.5f, erfcf(__fmul_rn(x, -0.70710678f))); }

template <GeluForm form>
__device__ float forward(float x) {
  return __fmul_rn(x, form == GeluForm::tanh ? sigmoid(x).s : normal(x));
}

/// Returns gelu'(x), and stores gelu(x) in `value`.
template <GeluForm form>
__device__ float derivative(float x, float& value) {
  if constexpr (form == GeluForm::erf) {
    const float below = normal(x);
    value = __fmul_rn(x, below);
    return below + x * 0.39894228f * exp2f(fmaxf(-0.5f * cuda::log2_e * (x * x), -125.0f));
  }
  const auto [s, rest] = sigmoid(x);
  const float slope = twice_root + 3.0f * twice_root * cubic * (x * x);  // derivative of 2u
  value = __fmul_rn(x, s);
  return s + x * slope * (s * rest);
}

/// Each thread computes `width` elements, the last one possibly fewer.
template <int width, GeluForm form, typename T>
__global__ void __launch_bounds__(threads) forward_kernel(T* y, const T* x, std::size_t n) {
  const std::size_t i = (std::size_t{blockIdx.x} * threads + threadIdx.x) * width;
  if (i + width <= n) {
    float values[width];
    cuda::load(values, x + i);
#pragma unroll
    for (float& value : values) value = forward<form>(value);
    cuda::store(y + i, values);
  } else {
    for (std::size_t at = i; at < n; ++at) y[at] = cuda::from_float<T>(forward<form>(cuda::to_float(x[at])));
  }
}

template <int width, GeluForm form, typename T>
__global__ void __launch_bounds__(threads, 6) backward_kernel(T* d, const T* x, T* y, std::size_t n) {
  const std::size_t i = (std::size_t{blockIdx.x} * threads + threadIdx.x) * width;
  if (i + width <= n) {
    float values[width], gradients[width];
    cuda::load(values, x + i);
    cuda::load(gradients, d + i);
#pragma unroll
    for (int e = 0; e < width; ++e) gradients[e] *= derivative<form>(values[e], values[e]);
    cuda::store(d + i, gradients);
    if (y != nullptr) cuda::store(y + i, values);
  } else {
    for (std::size_t at = i; at < n; ++at) {
      float value = 0;
      const float slope = derivative<form>(cuda::to_float(x[at]), value);
      d[at] = cuda::from_float<T>(cuda::to_float(d[at]) * slope);
      if (y != nullptr) y[at] = cuda::from_float<T>(value);
    }
  }
}

}  // namespace

void gelu_forward_cuda(runtime::StreamView stream, runtime::DType dtype, void* y, const void* x, std::size_t n,
                       GeluForm form) {
  if (n == 0) return;
  cuda::with_type(dtype, [&](auto type) {
    using T = decltype(type);
    cuda::with_width<T>(cuda::aligned(y) && cuda::aligned(x), [&](auto width) {
      runtime::cuda::launch("gelu_forward", runtime::cuda::native(stream),
                            {cuda::blocks_of(n, threads * width()), threads},
                            form == GeluForm::tanh ? forward_kernel<width(), GeluForm::tanh, T>
                                                   : forward_kernel<width(), GeluForm::erf, T>,
                            static_cast<T*>(y), static_cast<const T*>(x), n);
    });
  });
}

void gelu_backward_cuda(runtime::StreamView stream, runtime::DType dtype, void* d, const void* x, void* y,
                        std::size_t n, GeluForm form) {
  if (n == 0) return;
  cuda::with_type(dtype, [&](auto type) {
    using T = decltype(type);
    cuda::with_width<T>(cuda::aligned(d) && cuda::aligned(x) && cuda::aligned(y), [&](auto width) {
      runtime::cuda::launch("gelu_backward", runtime::cuda::native(stream),
                            {cuda::blocks_of(n, threads * width()), threads},
                            form == GeluForm::tanh ? backward_kernel<width(), GeluForm::tanh, T>
                                                   : backward_kernel<width(), GeluForm::erf, T>,
                            static_cast<T*>(d), static_cast<const T*>(x), static_cast<T*>(y), n);
    });
  });
}

}  // namespace ranvier::models

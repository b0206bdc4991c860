#include "models/ops/activation.hpp"

#include "models/ops/cuda_vector.cuh"

namespace ranvier::models {
namespace {

constexpr int threads = 256;

struct Sigmoid {
  float s;     ///< 1 / (1 + 2^exponent)
  float rest;  ///< 1 - s, without cancellation
};

// Here and below, intrinsics fix the rounding, so that forward and backward agree.
__device__ Sigmoid sigmoid(float exponent) {
  const float e = exp2f(fmaxf(fminf(exponent, 125.0f), -125.0f));
  const float s = __frcp_rn(__fadd_rn(1.0f, e));
  return {s, __fmul_rn(e, s)};
}

constexpr float twice_root = 1.5957691216f;  // 2√(2/π)
constexpr float cubic = 0.044715f;

/// -2u to base 2. With u the argument of tanh, (1 + tanh u)/2 = 1/(1 + e^-2u): no cancellation for large negative x.
__device__ float gelu_exponent(float x) {
  return __fmul_rn(x, __fmaf_rn(-twice_root * cubic * cuda::log2_e, __fmul_rn(x, x), -twice_root * cuda::log2_e));
}

/// Φ(x), without cancellation for large negative x.
__device__ float normal(float x) { return __fmul_rn(0.5f, erfcf(__fmul_rn(x, -0.70710678f))); }

template <GeluForm form>
__device__ float gelu(float x) {
  return __fmul_rn(x, form == GeluForm::tanh ? sigmoid(gelu_exponent(x)).s : normal(x));
}

/// Returns gelu'(x), and stores gelu(x) in `value`.
template <GeluForm form>
__device__ float gelu_derivative(float x, float& value) {
  if constexpr (form == GeluForm::erf) {
    const float below = normal(x);
    value = __fmul_rn(x, below);
    return below + x * 0.39894228f * exp2f(fmaxf(-0.5f * cuda::log2_e * (x * x), -125.0f));
  }
  const auto [s, rest] = sigmoid(gelu_exponent(x));
  const float slope = twice_root + 3.0f * twice_root * cubic * (x * x);  // derivative of 2u
  value = __fmul_rn(x, s);
  return s + x * slope * (s * rest);
}

/// Each thread computes a pack of `width` elements.
template <int width, GeluForm form, typename T>
__global__ void __launch_bounds__(threads) gelu_forward_kernel(T* y, const T* x, std::size_t packs) {
  const std::size_t at = std::size_t{blockIdx.x} * threads + threadIdx.x;
  if (at >= packs) return;
  float values[width];
  cuda::load(values, x + at * width);
#pragma unroll
  for (float& value : values) value = gelu<form>(value);
  cuda::store(y + at * width, values);
}

template <int width, GeluForm form, typename T>
__global__ void __launch_bounds__(threads, 6) gelu_backward_kernel(T* d, const T* x, T* y, std::size_t packs) {
  const std::size_t at = std::size_t{blockIdx.x} * threads + threadIdx.x;
  if (at >= packs) return;
  float values[width], gradients[width];
  cuda::load(values, x + at * width);
  cuda::load(gradients, d + at * width);
#pragma unroll
  for (int e = 0; e < width; ++e) gradients[e] *= gelu_derivative<form>(values[e], values[e]);
  cuda::store(d + at * width, gradients);
  if (y != nullptr) cuda::store(y + at * width, values);
}

/// Offsets of pack `at` of all rows: in y, and of its gates in gate_up.
struct PairOffsets {
  __device__ PairOffsets(std::size_t at, std::size_t channels, int width)
      : y(at * width), gate(y / channels * 2 * channels + y % channels) {}
  std::size_t y, gate;
};

template <int width, typename T>
__global__ void __launch_bounds__(threads)
    swiglu_forward_kernel(T* y, const T* gate_up, std::size_t packs, std::size_t channels) {
  const std::size_t at = std::size_t{blockIdx.x} * threads + threadIdx.x;
  if (at >= packs) return;
  const PairOffsets place(at, channels, width);
  float gate[width], up[width];
  cuda::load(gate, gate_up + place.gate);
  cuda::load(up, gate_up + place.gate + channels);
#pragma unroll
  for (int e = 0; e < width; ++e)
    up[e] = __fmul_rn(__fmul_rn(gate[e], sigmoid(__fmul_rn(gate[e], -cuda::log2_e)).s), up[e]);
  cuda::store(y + place.y, up);
}

template <int width, typename T>
__global__ void __launch_bounds__(threads)
    swiglu_backward_kernel(const T* d, T* gate_up, T* y, std::size_t packs, std::size_t channels) {
  const std::size_t at = std::size_t{blockIdx.x} * threads + threadIdx.x;
  if (at >= packs) return;
  const PairOffsets place(at, channels, width);
  float gate[width], up[width], dy[width];
  cuda::load(gate, gate_up + place.gate);
  cuda::load(up, gate_up + place.gate + channels);
  cuda::load(dy, d + place.y);
#pragma unroll
  for (int e = 0; e < width; ++e) {
    const auto [s, rest] = sigmoid(__fmul_rn(gate[e], -cuda::log2_e));
    const float silu = __fmul_rn(gate[e], s), gradient = dy[e];
    dy[e] = __fmul_rn(silu, up[e]);
    gate[e] = gradient * up[e] * (s + silu * rest);
    up[e] = gradient * silu;
  }
  cuda::store(gate_up + place.gate, gate);
  cuda::store(gate_up + place.gate + channels, up);
  if (y != nullptr) cuda::store(y + place.y, dy);
}

/// One thread per element: a classifier has a row per sample.
template <typename T>
__global__ void __launch_bounds__(threads) tanh_forward_kernel(T* y, const T* x, std::size_t n) {
  const std::size_t i = std::size_t{blockIdx.x} * threads + threadIdx.x;
  if (i < n) y[i] = cuda::from_float<T>(tanhf(cuda::to_float(x[i])));
}

template <typename T>
__global__ void __launch_bounds__(threads) tanh_backward_kernel(T* d, const T* y, std::size_t n) {
  const std::size_t i = std::size_t{blockIdx.x} * threads + threadIdx.x;
  if (i >= n) return;
  const float value = cuda::to_float(y[i]);
  d[i] = cuda::from_float<T>(cuda::to_float(d[i]) * (1.0f - value * value));
}

}  // namespace

void gelu_forward_cuda(runtime::StreamView stream, runtime::DType dtype, void* y, const void* x, std::size_t n,
                       GeluForm form) {
  cuda::with_rows(dtype, n, {y, x}, [&]<typename T>(T, auto width) {
    const std::size_t packs = n / width();
    cuda::launch_each<threads>("gelu_forward", stream, packs,
                               form == GeluForm::tanh ? gelu_forward_kernel<width(), GeluForm::tanh, T>
                                                      : gelu_forward_kernel<width(), GeluForm::erf, T>,
                               y, x, packs);
  });
}

void gelu_backward_cuda(runtime::StreamView stream, runtime::DType dtype, void* d, const void* x, void* y,
                        std::size_t n, GeluForm form) {
  cuda::with_rows(dtype, n, {d, x, y}, [&]<typename T>(T, auto width) {
    const std::size_t packs = n / width();
    cuda::launch_each<threads>("gelu_backward", stream, packs,
                               form == GeluForm::tanh ? gelu_backward_kernel<width(), GeluForm::tanh, T>
                                                      : gelu_backward_kernel<width(), GeluForm::erf, T>,
                               d, x, y, packs);
  });
}

void swiglu_forward_cuda(runtime::StreamView stream, runtime::DType dtype, void* y, const void* gate_up,
                         std::size_t rows, std::size_t channels) {
  cuda::with_rows(dtype, channels, {y, gate_up}, [&]<typename T>(T, auto width) {
    const std::size_t packs = rows * channels / width();
    cuda::launch_each<threads>("swiglu_forward", stream, packs, swiglu_forward_kernel<width(), T>, y, gate_up,
                               packs, channels);
  });
}

void swiglu_backward_cuda(runtime::StreamView stream, runtime::DType dtype, const void* d, void* gate_up, void* y,
                          std::size_t rows, std::size_t channels) {
  cuda::with_rows(dtype, channels, {d, gate_up, y}, [&]<typename T>(T, auto width) {
    const std::size_t packs = rows * channels / width();
    cuda::launch_each<threads>("swiglu_backward", stream, packs, swiglu_backward_kernel<width(), T>, d, gate_up, y,
                               packs, channels);
  });
}

void tanh_forward_cuda(runtime::StreamView stream, runtime::DType dtype, void* y, const void* x, std::size_t n) {
  cuda::with_type(dtype, [&]<typename T>(T) {
    cuda::launch_each<threads>("tanh_forward", stream, n, tanh_forward_kernel<T>, y, x, n);
  });
}

void tanh_backward_cuda(runtime::StreamView stream, runtime::DType dtype, void* d, const void* y, std::size_t n) {
  cuda::with_type(dtype, [&]<typename T>(T) {
    cuda::launch_each<threads>("tanh_backward", stream, n, tanh_backward_kernel<T>, d, y, n);
  });
}

}  // namespace ranvier::models

#include "models/ops/swiglu.hpp"

#include "models/ops/cuda_vector.cuh"
#include "runtime/device/cuda_native.hpp"
#include "runtime/kernels/launch.cuh"

namespace ranvier::models {
namespace {

constexpr int threads = 256;

struct Sigmoid {
  float s;     ///< 1 / (1 + e^-x)
  float rest;  ///< 1 - s, without cancellation
};

// Intrinsics fix the rounding, so that forward and backward agree.
__device__ Sigmoid sigmoid(float x) {
  const float e = exp2f(fmaxf(fminf(__fmul_rn(x, -cuda::log2_e), 125.0f), -125.0f));  // e^-x
  const float s = __frcp_rn(__fadd_rn(1.0f, e));
  return {s, __fmul_rn(e, s)};
}

/// Offsets of pack `at` of all rows: in y, and of its gates in gate_up.
struct PairOffsets {
  __device__ PairOffsets(std::size_t at, std::size_t channels, int width)
      : y(at * width), gate(y / channels * 2 * channels + y % channels) {}
  std::size_t y, gate;
};

template <int width, typename T>
__global__ void __launch_bounds__(threads)
    forward_kernel(T* y, const T* gate_up, std::size_t packs, std::size_t channels) {
  const std::size_t at = std::size_t{blockIdx.x} * threads + threadIdx.x;
  if (at >= packs) return;
  const PairOffsets place(at, channels, width);
  float gate[width], up[width];
  cuda::load(gate, gate_up + place.gate);
  cuda::load(up, gate_up + place.gate + channels);
#pragma unroll
  for (int e = 0; e < width; ++e) up[e] = __fmul_rn(__fmul_rn(gate[e], sigmoid(gate[e]).s), up[e]);
  cuda::store(y + place.y, up);
}

template <int width, typename T>
__global__ void __launch_bounds__(threads)
    backward_kernel(const T* d, T* gate_up, T* y, std::size_t packs, std::size_t channels) {
  const std::size_t at = std::size_t{blockIdx.x} * threads + threadIdx.x;
  if (at >= packs) return;
  const PairOffsets place(at, channels, width);
  float gate[width], up[width], dy[width];
  cuda::load(gate, gate_up + place.gate);
  cuda::load(up, gate_up + place.gate + channels);
  cuda::load(dy, d + place.y);
#pragma unroll
  for (int e = 0; e < width; ++e) {
    const auto [s, rest] = sigmoid(gate[e]);
    const float silu = __fmul_rn(gate[e], s), gradient = dy[e];
    dy[e] = __fmul_rn(silu, up[e]);
    gate[e] = gradient * up[e] * (s + silu * rest);
    up[e] = gradient * silu;
  }
  cuda::store(gate_up + place.gate, gate);
  cuda::store(gate_up + place.gate + channels, up);
  if (y != nullptr) cuda::store(y + place.y, dy);
}

}  // namespace

void swiglu_forward_cuda(runtime::StreamView stream, runtime::DType dtype, void* y, const void* gate_up,
                         std::size_t rows, std::size_t channels) {
  if (rows == 0 || channels == 0) return;
  cuda::with_rows(dtype, channels, {y, gate_up}, [&](auto type, auto width) {
    using T = decltype(type);
    const std::size_t packs = rows * channels / width();
    runtime::cuda::launch("swiglu_forward", runtime::cuda::native(stream),
                          {cuda::blocks_of(packs, threads), threads}, forward_kernel<width(), T>,
                          static_cast<T*>(y), static_cast<const T*>(gate_up), packs, channels);
  });
}

void swiglu_backward_cuda(runtime::StreamView stream, runtime::DType dtype, const void* d, void* gate_up, void* y,
                          std::size_t rows, std::size_t channels) {
  if (rows == 0 || channels == 0) return;
  cuda::with_rows(dtype, channels, {d, gate_up, y}, [&](auto type, auto width) {
    using T = decltype(type);
    const std::size_t packs = rows * channels / width();
    runtime::cuda::launch("swiglu_backward", runtime::cuda::native(stream),
                          {cuda::blocks_of(packs, threads), threads}, backward_kernel<width(), T>,
                          static_cast<const T*>(d), static_cast<T*>(gate_up), static_cast<T*>(y), packs, channels);
  });
}

}  // namespace ranvier::models

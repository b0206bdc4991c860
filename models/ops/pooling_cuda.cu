// One thread per written value.
#include "models/ops/pooling.hpp"

#include "models/ops/cuda_vector.cuh"

namespace ranvier::models {
namespace {

constexpr int threads = 256;

template <typename T>
__global__ void __launch_bounds__(threads)
    max_forward_kernel(T* y, std::uint8_t* places, const T* x, PatchShape shape, std::size_t P, std::size_t Q,
                       std::size_t n) {
  const std::size_t at = std::size_t{blockIdx.x} * threads + threadIdx.x;
  if (at >= n) return;
  const std::size_t c = at % shape.channels, row = at / shape.channels;
  const std::size_t q = row % Q, p = row / Q % P, sample = row / Q / P;
  float best = 0;
  unsigned place = 0;
  bool any = false;
  for (std::size_t i = 0; i < shape.kernel; ++i) {
    for (std::size_t j = 0; j < shape.kernel; ++j) {
      // A negative coordinate wraps around and is too large.
      const std::size_t h = p * shape.stride + i - shape.padding, w = q * shape.stride + j - shape.padding;
      if (h >= shape.height || w >= shape.width) continue;
      const float value = cuda::to_float(x[((sample * shape.height + h) * shape.width + w) * shape.channels + c]);
      if (any && !(value > best) && !(value != value && best == best)) continue;
      best = value;
      place = static_cast<unsigned>(i * shape.kernel + j);
      any = true;
    }
  }
  y[at] = cuda::from_float<T>(best);
  places[at] = static_cast<std::uint8_t>(place);
}

template <typename T>
__global__ void __launch_bounds__(threads)
    max_backward_kernel(T* dx, const T* dy, const std::uint8_t* places, PatchShape shape, std::size_t P,
                        std::size_t Q, std::size_t n) {
  const std::size_t at = std::size_t{blockIdx.x} * threads + threadIdx.x;
  if (at >= n) return;
  const std::size_t c = at % shape.channels, pixel = at / shape.channels;
  float total = 0;
  shape.for_covering(pixel, P, Q, [&](std::size_t row, std::size_t tap) {
    const std::size_t from = row * shape.channels + c;
    if (places[from] == tap) total += cuda::to_float(dy[from]);
  });
  dx[at] = cuda::from_float<T>(total);
}

template <typename T>
__global__ void __launch_bounds__(threads) mean_forward_kernel(T* y, const T* x, MeanPoolShape shape) {
  const std::size_t at = std::size_t{blockIdx.x} * threads + threadIdx.x;
  if (at >= shape.samples * shape.channels) return;
  const std::size_t c = at % shape.channels, sample = at / shape.channels;
  float total = 0;
  for (std::size_t pixel = 0; pixel < shape.pixels; ++pixel)
    total += cuda::to_float(x[(sample * shape.pixels + pixel) * shape.channels + c]);
  y[at] = cuda::from_float<T>(total * (1.0f / static_cast<float>(shape.pixels)));
}

template <typename T>
__global__ void __launch_bounds__(threads)
    mean_backward_kernel(T* dx, const T* dy, MeanPoolShape shape, std::size_t n) {
  const std::size_t at = std::size_t{blockIdx.x} * threads + threadIdx.x;
  if (at >= n) return;
  const std::size_t c = at % shape.channels, sample = at / shape.channels / shape.pixels;
  dx[at] = cuda::from_float<T>(cuda::to_float(dy[sample * shape.channels + c]) *
                               (1.0f / static_cast<float>(shape.pixels)));
}

}  // namespace

void max_pool_forward_cuda(runtime::StreamView stream, const PatchShape& shape, runtime::DType dtype, void* y,
                           std::uint8_t* places, const void* x) {
  const std::size_t n = shape.rows() * shape.channels;
  cuda::with_type(dtype, [&]<typename T>(T) {
    cuda::launch_each<threads>("max_pool_forward", stream, n, max_forward_kernel<T>, y, places, x, shape,
                               shape.out_height(), shape.out_width(), n);
  });
}

void max_pool_backward_cuda(runtime::StreamView stream, const PatchShape& shape, runtime::DType dtype, void* dx,
                            const void* dy, const std::uint8_t* places) {
  const std::size_t n = shape.samples * shape.height * shape.width * shape.channels;
  cuda::with_type(dtype, [&]<typename T>(T) {
    cuda::launch_each<threads>("max_pool_backward", stream, n, max_backward_kernel<T>, dx, dy, places, shape,
                               shape.out_height(), shape.out_width(), n);
  });
}

void mean_pool_forward_cuda(runtime::StreamView stream, const MeanPoolShape& shape, runtime::DType dtype, void* y,
                            const void* x) {
  const std::size_t n = shape.samples * shape.channels;
  cuda::with_type(dtype, [&]<typename T>(T) {
    cuda::launch_each<threads>("mean_pool_forward", stream, n, mean_forward_kernel<T>, y, x, shape);
  });
}

void mean_pool_backward_cuda(runtime::StreamView stream, const MeanPoolShape& shape, runtime::DType dtype, void* dx,
                             const void* dy) {
  const std::size_t n = shape.samples * shape.pixels * shape.channels;
  cuda::with_type(dtype, [&]<typename T>(T) {
    cuda::launch_each<threads>("mean_pool_backward", stream, n, mean_backward_kernel<T>, dx, dy, shape, n);
  });
}

}  // namespace ranvier::models

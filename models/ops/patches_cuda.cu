// One thread per written value.
#include "models/ops/patches.hpp"

#include "models/ops/cuda_vector.cuh"

namespace ranvier::models {
namespace {

constexpr int threads = 256;

template <typename T>
__global__ void __launch_bounds__(threads)
    gather_kernel(T* patches, const T* x, PatchShape shape, std::size_t P, std::size_t Q, std::size_t n) {
  const std::size_t at = std::size_t{blockIdx.x} * threads + threadIdx.x;
  if (at >= n) return;
  const std::size_t row = at / shape.columns(), column = at % shape.columns();
  const std::size_t c = column / shape.taps(), tap = column % shape.taps();
  const std::size_t q = row % Q, p = row / Q % P, sample = row / Q / P;
  // A negative coordinate wraps around and is too large.
  const std::size_t h = p * shape.stride + tap / shape.kernel - shape.padding;
  const std::size_t w = q * shape.stride + tap % shape.kernel - shape.padding;
  T value = cuda::from_float<T>(0.0f);
  if (h < shape.height && w < shape.width)
    value = x[((sample * shape.height + h) * shape.width + w) * shape.channels + c];
  patches[at] = value;
}

template <typename T>
__global__ void __launch_bounds__(threads)
    add_kernel(T* x, const float* patches, PatchShape shape, std::size_t P, std::size_t Q, std::size_t n) {
  const std::size_t at = std::size_t{blockIdx.x} * threads + threadIdx.x;
  if (at >= n) return;
  const std::size_t c = at % shape.channels, pixel = at / shape.channels;
  float total = 0;
  shape.for_covering(pixel, P, Q, [&](std::size_t row, std::size_t tap) {
    total += patches[row * shape.columns() + c * shape.taps() + tap];
  });
  x[at] = cuda::from_float<T>(total);
}

template <typename T>
__global__ void __launch_bounds__(threads)
    read_kernel(T* to, const std::uint8_t* from, std::size_t pixels, PixelScale scale, std::size_t n) {
  const std::size_t at = std::size_t{blockIdx.x} * threads + threadIdx.x;
  if (at >= n) return;
  const std::size_t k = at % colours, pixel = at / colours % pixels, sample = at / colours / pixels;
  const float value = __fdiv_rn(static_cast<float>(from[(sample * colours + k) * pixels + pixel]), 255.0f);
  to[at] = cuda::from_float<T>(__fdiv_rn(__fsub_rn(value, scale.mean[k]), scale.deviation[k]));
}

}  // namespace

void gather_patches_cuda(runtime::StreamView stream, const PatchShape& shape, runtime::DType dtype, void* patches,
                         const void* x) {
  const std::size_t n = shape.rows() * shape.columns();
  cuda::with_type(dtype, [&]<typename T>(T) {
    cuda::launch_each<threads>("gather_patches", stream, n, gather_kernel<T>, patches, x, shape, shape.out_height(),
                               shape.out_width(), n);
  });
}

void add_patches_cuda(runtime::StreamView stream, const PatchShape& shape, runtime::DType dtype, void* x,
                      const float* patches) {
  const std::size_t n = shape.samples * shape.height * shape.width * shape.channels;
  cuda::with_type(dtype, [&]<typename T>(T) {
    cuda::launch_each<threads>("add_patches", stream, n, add_kernel<T>, x, patches, shape, shape.out_height(),
                               shape.out_width(), n);
  });
}

void read_pixels_cuda(runtime::StreamView stream, std::size_t samples, std::size_t pixels, runtime::DType dtype,
                      void* to, const std::uint8_t* from, const PixelScale& scale) {
  const std::size_t n = samples * pixels * colours;
  cuda::with_type(dtype, [&]<typename T>(T) {
    cuda::launch_each<threads>("read_pixels", stream, n, read_kernel<T>, to, from, pixels, scale, n);
  });
}

}  // namespace ranvier::models

// One thread per written value.
#include "models/ops/patches.hpp"

#include "models/ops/cuda_vector.cuh"
#include "runtime/device/cuda_native.hpp"
#include "runtime/kernels/launch.cuh"

namespace ranvier::models {
namespace {

constexpr int threads = 256;

/// Sizes for kernels, computed once.
struct Patches {
  explicit Patches(const PatchShape& shape)
      : height(shape.height),
        width(shape.width),
        channels(shape.channels),
        kernel(shape.kernel),
        stride(shape.stride),
        padding(shape.padding),
        out_height(shape.out_height()),
        out_width(shape.out_width()),
        columns(shape.columns()) {}

  std::size_t height, width, channels, kernel, stride, padding, out_height, out_width, columns;
};

template <typename T>
__global__ void __launch_bounds__(threads) gather_kernel(T* patches, const T* x, Patches shape, std::size_t n) {
  const std::size_t at = std::size_t{blockIdx.x} * threads + threadIdx.x;
  if (at >= n) return;
  const std::size_t row = at / shape.columns, column = at % shape.columns, taps = shape.kernel * shape.kernel;
  const std::size_t c = column / taps, tap = column % taps;
  const std::size_t q = row % shape.out_width, p = row / shape.out_width % shape.out_height;
  const std::size_t sample = row / shape.out_width / shape.out_height;
  // A negative coordinate wraps around and is too large.
  const std::size_t h = p * shape.stride + tap / shape.kernel - shape.padding;
  const std::size_t w = q * shape.stride + tap % shape.kernel - shape.padding;
  T value = cuda::from_float<T>(0.0f);
  if (h < shape.height && w < shape.width)
    value = x[((sample * shape.height + h) * shape.width + w) * shape.channels + c];
  patches[at] = value;
}

/// First patch along an axis that contains a pixel; `reach`: the pixel's coordinate plus the padding.
__device__ std::size_t first_patch(const Patches& shape, std::size_t reach) {
  return reach < shape.kernel ? 0 : (reach - shape.kernel) / shape.stride + 1;
}

template <typename T>
__global__ void __launch_bounds__(threads) add_kernel(T* x, const float* patches, Patches shape, std::size_t n) {
  const std::size_t at = std::size_t{blockIdx.x} * threads + threadIdx.x;
  if (at >= n) return;
  const std::size_t c = at % shape.channels, pixel = at / shape.channels;
  const std::size_t w = pixel % shape.width + shape.padding;
  const std::size_t h = pixel / shape.width % shape.height + shape.padding;
  const std::size_t sample = pixel / shape.width / shape.height, taps = shape.kernel * shape.kernel;
  float total = 0;
  for (std::size_t p = first_patch(shape, h); p <= h / shape.stride && p < shape.out_height; ++p) {
    for (std::size_t q = first_patch(shape, w); q <= w / shape.stride && q < shape.out_width; ++q) {
      const std::size_t row = (sample * shape.out_height + p) * shape.out_width + q;
      const std::size_t tap = (h - p * shape.stride) * shape.kernel + (w - q * shape.stride);
      total += patches[row * shape.columns + c * taps + tap];
    }
  }
  x[at] = cuda::from_float<T>(total);
}

}  // namespace

void gather_patches_cuda(runtime::StreamView stream, const PatchShape& shape, runtime::DType dtype, void* patches,
                         const void* x) {
  const std::size_t n = shape.rows() * shape.columns();
  if (n == 0) return;
  cuda::with_type(dtype, [&](auto type) {
    using T = decltype(type);
    runtime::cuda::launch("gather_patches", runtime::cuda::native(stream), {cuda::blocks_of(n, threads), threads},
                          gather_kernel<T>, static_cast<T*>(patches), static_cast<const T*>(x), Patches(shape), n);
  });
}

void add_patches_cuda(runtime::StreamView stream, const PatchShape& shape, runtime::DType dtype, void* x,
                      const float* patches) {
  const std::size_t n = shape.samples * shape.height * shape.width * shape.channels;
  if (n == 0) return;
  cuda::with_type(dtype, [&](auto type) {
    using T = decltype(type);
    runtime::cuda::launch("add_patches", runtime::cuda::native(stream), {cuda::blocks_of(n, threads), threads},
                          add_kernel<T>, static_cast<T*>(x), patches, Patches(shape), n);
  });
}

}  // namespace ranvier::models

#include "models/ops/pixels.hpp"

#include "models/ops/cuda_vector.cuh"
#include "runtime/device/cuda_native.hpp"
#include "runtime/kernels/launch.cuh"

namespace ranvier::models {
namespace {

constexpr int threads = 256;

/// PixelScale for kernels, which cannot index its std::array.
struct Scale {
  float mean[colours];
  float deviation[colours];
};

/// One thread per written value.
template <typename T>
__global__ void __launch_bounds__(threads)
    read_kernel(T* to, const std::uint8_t* from, std::size_t pixels, Scale scale, std::size_t n) {
  const std::size_t at = std::size_t{blockIdx.x} * threads + threadIdx.x;
  if (at >= n) return;
  const std::size_t k = at % colours, pixel = at / colours % pixels, sample = at / colours / pixels;
  const float value = __fdiv_rn(static_cast<float>(from[(sample * colours + k) * pixels + pixel]), 255.0f);
  to[at] = cuda::from_float<T>(__fdiv_rn(__fsub_rn(value, scale.mean[k]), scale.deviation[k]));
}

}  // namespace

void read_pixels_cuda(runtime::StreamView stream, std::size_t samples, std::size_t pixels, runtime::DType dtype,
                      void* to, const std::uint8_t* from, const PixelScale& scale) {
  const std::size_t n = samples * pixels * colours;
  Scale constants{};
  for (std::size_t k = 0; k < colours; ++k) {
    constants.mean[k] = scale.mean[k];
    constants.deviation[k] = scale.deviation[k];
  }
  cuda::with_type(dtype, [&](auto type) {
    using T = decltype(type);
    cuda::launch_each<threads>("read_pixels", stream, n, read_kernel<T>, static_cast<T*>(to), from, pixels,
                               constants, n);
  });
}

}  // namespace ranvier::models

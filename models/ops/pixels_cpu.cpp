#include "models/ops/pixels.hpp"

#include "runtime/host/compute_pool.hpp"

namespace ranvier::models {

void read_pixels_cpu(runtime::ComputePool& pool, std::size_t samples, std::size_t pixels, runtime::DType dtype,
                     void* to, const std::uint8_t* from, const PixelScale& scale) {
  runtime::with_float_type(dtype, [&](auto type) {
    using T = decltype(type);
    pool.run([&](int thread, int threads) {
      const auto share = runtime::share_of(samples * pixels, thread, threads);
      for (std::size_t at = share.begin; at < share.end; ++at) {
        const std::uint8_t* const image = from + at / pixels * colours * pixels + at % pixels;
        for (std::size_t k = 0; k < colours; ++k) {
          const float value = static_cast<float>(image[k * pixels]) / 255.0f;
          static_cast<T*>(to)[at * colours + k] =
              runtime::from_float<T>((value - scale.mean[k]) / scale.deviation[k]);
        }
      }
    });
  });
}

}  // namespace ranvier::models

#include "models/ops/pixels.hpp"

#include "models/ops/dispatch.hpp"
#include "models/ops/small_task.hpp"
#include "runtime/host/compute_pool.hpp"

namespace ranvier::models {
void read_pixels(runtime::StreamView stream, std::size_t samples, std::size_t pixels, runtime::DType dtype,
                 void* to, const std::uint8_t* from, const PixelScale& scale) {
  expect_kernel(dtype, "pixels");
  const std::size_t values = samples * pixels * colours;
  if (ran_on_gpu<read_pixels_cuda>(stream, samples, pixels, dtype, to, from, scale)) return;
  const runtime::WorkCost cost = memory_cost(runtime::WorkKind::patches, dtype, values + bytes_of(values, dtype));
  launch_typed(stream, dtype, cost, [=](runtime::ComputePool& pool, auto type) {
    using T = decltype(type);
    for_each_row(pool, samples * pixels, [&](std::size_t at) {
      const std::uint8_t* const image = from + at / pixels * colours * pixels + at % pixels;
      for (std::size_t k = 0; k < colours; ++k) {
        const float value = static_cast<float>(image[k * pixels]) / 255.0f;
        static_cast<T*>(to)[at * colours + k] =
            runtime::from_float<T>((value - scale.mean[k]) / scale.deviation[k]);
      }
    });
  });
}

}  // namespace ranvier::models

#include "models/ops/pixels.hpp"

#include "models/ops/dispatch.hpp"

namespace ranvier::models {

void read_pixels(runtime::StreamView stream, std::size_t samples, std::size_t pixels, runtime::DType dtype,
                 void* to, const std::uint8_t* from, const PixelScale& scale) {
  expect_kernel(dtype, "pixels");
  const std::size_t values = samples * pixels * colours;
  on_device<read_pixels_cpu, read_pixels_cuda>(
      stream, memory_cost(runtime::WorkKind::patches, dtype, values + bytes_of(values, dtype)), samples, pixels,
      dtype, to, from, scale);
}

}  // namespace ranvier::models

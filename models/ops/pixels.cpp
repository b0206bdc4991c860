#include "models/ops/pixels.hpp"

#include "models/ops/dispatch.hpp"

namespace ranvier::models {

void read_pixels(runtime::StreamView stream, std::size_t samples, std::size_t pixels, runtime::DType dtype,
                 void* to, const std::uint8_t* from, const PixelScale& scale) {
  expect_kernel(dtype, "pixels");
  on_device<read_pixels_cpu, read_pixels_cuda>(stream, samples, pixels, dtype, to, from, scale);
}

}  // namespace ranvier::models

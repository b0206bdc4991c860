// Converts images from file layout (bytes, one plane per colour) to the layers' layout.
#pragma once

#include "runtime/base/dtype.hpp"
#include "runtime/device/stream.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace ranvier::models {

inline constexpr std::size_t colours = 3;

/// A byte of colour k becomes (byte / 255 - mean[k]) / deviation[k]. Defaults: torchvision's values for ImageNet.
struct PixelScale {
  std::array<float, colours> mean{0.485f, 0.456f, 0.406f};
  std::array<float, colours> deviation{0.229f, 0.224f, 0.225f};
};

/// to[B, pixels, 3] from from[B, 3, pixels], for `samples` images of `pixels` pixels.
void read_pixels(runtime::StreamView stream, std::size_t samples, std::size_t pixels, runtime::DType dtype,
                 void* to, const std::uint8_t* from, const PixelScale& scale = {});

// GPU kernels.
decltype(read_pixels) read_pixels_cuda;

}  // namespace ranvier::models

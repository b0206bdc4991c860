// Layouts of images: from files to layers, and between images and rows of patches (im2col), so that a convolution is a
// matrix multiplication.
//
// Letters: B samples, H × W pixels of an image, C channels, K × K pixels of a patch, P × Q patches of an image. Images
// are [B, H, W, C]; a patch is a row [C, K, K], as are kernels: [out, C, K, K].
#pragma once

#include "runtime/base/dtype.hpp"
#include "runtime/device/stream.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace ranvier::models {

/// Positions of patches: patch (p, q) starts at pixel (p · stride - padding, q · stride - padding). Pixels outside of
/// the image are zero.
struct PatchShape {
  std::size_t samples = 0;   ///< B
  std::size_t height = 0;    ///< H
  std::size_t width = 0;     ///< W
  std::size_t channels = 0;  ///< C
  std::size_t kernel = 1;    ///< K, at most max_kernel
  std::size_t stride = 1;
  std::size_t padding = 0;  ///< less than K

  static constexpr std::size_t max_kernel = 7;
  static constexpr std::size_t max_taps = max_kernel * max_kernel;

  [[nodiscard]] std::size_t out_height() const { return (height + 2 * padding - kernel) / stride + 1; }  ///< P
  [[nodiscard]] std::size_t out_width() const { return (width + 2 * padding - kernel) / stride + 1; }    ///< Q
  [[nodiscard]] std::size_t rows() const { return samples * out_height() * out_width(); }
  [[nodiscard]] constexpr std::size_t taps() const { return kernel * kernel; }
  [[nodiscard]] constexpr std::size_t columns() const { return channels * taps(); }
  /// First patch along an axis that contains a pixel; `reach`: the pixel's coordinate plus the padding.
  [[nodiscard]] constexpr std::size_t first_patch(std::size_t reach) const {
    return reach < kernel ? 0 : (reach - kernel) / stride + 1;
  }
  /// Calls f(row, tap) for the patches that contain a pixel of the images, in their order. P and Q: out_height() and
  /// out_width().
  template <typename F>
  constexpr void for_covering(std::size_t pixel, std::size_t P, std::size_t Q, const F& f) const {
    const std::size_t w = pixel % width + padding, h = pixel / width % height + padding;
    const std::size_t sample = pixel / width / height;
    for (std::size_t p = first_patch(h); p <= h / stride && p < P; ++p)
      for (std::size_t q = first_patch(w); q <= w / stride && q < Q; ++q)
        f((sample * P + p) * Q + q, (h - p * stride) * kernel + (w - q * stride));
  }
};

/// Throws ErrorCode::internal if the shape has no patches.
void expect_patches(const PatchShape& shape, const char* operation);

/// patches[B·P·Q, C·K·K] = patches of x[B, H, W, C].
void gather_patches(runtime::StreamView stream, const PatchShape& shape, runtime::DType dtype, void* patches,
                    const void* x);

/// x[B, H, W, C] = per pixel, the sum over all patches that contain it, in the order of the patches, rounded once.
/// `patches` are float.
void add_patches(runtime::StreamView stream, const PatchShape& shape, runtime::DType dtype, void* x,
                 const float* patches);

inline constexpr std::size_t colours = 3;

/// A byte of colour k becomes (byte / 255 - mean[k]) / deviation[k]. Defaults: torchvision's values for ImageNet.
struct PixelScale {
  std::array<float, colours> mean{0.485f, 0.456f, 0.406f};
  std::array<float, colours> deviation{0.229f, 0.224f, 0.225f};
};

/// Converts `samples` images of `pixels` pixels as they are in files, with a plane per colour: to[B, pixels, 3] from
/// from[B, 3, pixels].
void read_pixels(runtime::StreamView stream, std::size_t samples, std::size_t pixels, runtime::DType dtype,
                 void* to, const std::uint8_t* from, const PixelScale& scale = {});

// GPU kernels.
decltype(gather_patches) gather_patches_cuda;
decltype(add_patches) add_patches_cuda;
decltype(read_pixels) read_pixels_cuda;

}  // namespace ranvier::models

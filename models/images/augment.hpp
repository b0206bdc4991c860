// Data augmentation of training images: crops with a black border, half of them mirrored. Any thread.
#pragma once

#include <cstdint>

namespace ranvier::models {

/// Crop of an image [3, S, S]: pixel (y, x) is that at (y + down, x + right), black outside.
struct Crop {
  static constexpr int border = 4;  ///< pixels on each side, as is usual for CIFAR

  int down = 0, right = 0;  ///< from -border to border
  bool mirrored = false;    ///< mirror left and right afterwards
};

/// Uniformly random, from seed and sample number only: the same on any grid, different in each epoch.
[[nodiscard]] Crop draw_crop(std::uint64_t seed, std::int64_t sample);

/// to[3, S, S] = the crop of from[3, S, S].
void crop_image(const Crop& crop, int size, std::uint8_t* to, const std::uint8_t* from);

}  // namespace ranvier::models

#include "models/images/augment.hpp"

#include "runtime/base/philox.hpp"

#include <algorithm>
#include <cstddef>

namespace ranvier::models {

Crop draw_crop(std::uint64_t seed, std::int64_t sample) {
  const auto number = static_cast<std::uint64_t>(sample);
  const auto bits =
      runtime::philox(runtime::philox_key(seed, runtime::RandomPurpose::augmentation),
                      {static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32), 0, 0});
  const auto shift = [](std::uint32_t word) {
    constexpr std::uint64_t shifts = 2 * Crop::border + 1;
    return static_cast<int>(word * shifts >> 32) - Crop::border;
  };
  return {shift(bits[0]), shift(bits[1]), bits[2] >> 31 != 0};
}

void crop_image(const Crop& crop, int size, std::uint8_t* to, const std::uint8_t* from) {
  // Columns of `to` inside the image.
  const int begin = std::clamp(-crop.right, 0, size), end = std::clamp(size - crop.right, begin, size);
  for (int plane = 0; plane < 3; ++plane) {
    for (int y = 0; y < size; ++y, to += size) {
      std::fill(to, to + size, std::uint8_t{0});
      const int row = y + crop.down;
      if (row >= 0 && row < size && begin < end) {
        const auto* const first = from + (std::ptrdiff_t{plane} * size + row) * size + (begin + crop.right);
        std::copy(first, first + (end - begin), to + begin);
      }
      if (crop.mirrored) std::reverse(to, to + size);
    }
  }
}

}  // namespace ranvier::models

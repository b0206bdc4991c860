#include "models/images/image_source.hpp"

#include "runtime/base/error.hpp"
#include "runtime/base/philox.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace ranvier::models {

ImageSource::ImageSource(std::shared_ptr<const ImageSet> set, std::int64_t first, std::int64_t count,
                         std::optional<std::uint64_t> shuffle_seed, std::optional<std::uint64_t> augment_seed)
    : set_(std::move(set)), first_(first), count_(count), augment_seed_(augment_seed) {
  expect(first >= 0 && count > 0 && first + count <= set_->images(), "images are out of range: {} to {} of {}",
         first, first + count, set_->images());
  if (shuffle_seed) order_.emplace(count, *shuffle_seed);
}

std::int64_t ImageSource::image_of(std::int64_t sample) const {
  return first_ + (order_ ? (*order_)(sample) : sample % count_);
}

void ImageSource::read_input(std::int64_t n, std::byte* to) const {
  auto* const pixels = reinterpret_cast<std::uint8_t*>(to);
  if (!augment_seed_) return set_->read(image_of(n), pixels);
  std::vector<std::uint8_t> image(input_bytes());
  set_->read(image_of(n), image.data());
  crop_image(draw_crop(*augment_seed_, n), set_->size(), pixels, image.data());
}

void ImageSource::read_target(std::int64_t n, std::byte* to) const {
  *reinterpret_cast<std::int32_t*>(to) = set_->label(image_of(n));
}

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

ImageData open_image_data(const ImageDataOptions& options) {
  ImageData data;
  std::shared_ptr<const ImageSet> set;
  if (options.path == synthetic_images) {
    set = std::make_shared<const SyntheticSet>(options.image_size, options.classes);
  } else {
    data.files = cifar_files(options.path);
    set = std::make_shared<const CifarSet>(data.files, options.classes);
  }
  if (set->size() != options.image_size)
    fail(ErrorCode::usage, "`data` {} has images {} pixels wide, but the model needs {}; use `image_size` {}",
         options.path, set->size(), options.image_size, set->size());
  data.images = set->images();
  const std::int64_t kept = validation_samples(options.validation_split, data.images, options.path, "images");
  data.training =
      std::make_unique<ImageSource>(set, 0, data.images - kept, options.shuffle_seed, options.augment_seed);
  if (kept > 0 || options.validates_all) {
    const std::int64_t first = kept > 0 ? data.images - kept : 0;
    data.validation = std::make_unique<ImageSource>(set, first, data.images - first, std::nullopt);
  }
  return data;
}

}  // namespace ranvier::models

// Part of an image set as samples: input is the image's bytes, target is its class. Random crops for training. Any
// thread.
#pragma once

#include "models/core/sample_source.hpp"
#include "models/images/image_set.hpp"
#include "models/text/sample_order.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

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

class ImageSource final : public SampleSource {
 public:
  /// `count` images starting at `first`, in order. With a shuffle seed: in random order, different in each epoch.
  /// With an augmentation seed: as random crops, different in each epoch.
  ImageSource(std::shared_ptr<const ImageSet> set, std::int64_t first, std::int64_t count,
              std::optional<std::uint64_t> shuffle_seed, std::optional<std::uint64_t> augment_seed = std::nullopt);

  [[nodiscard]] std::int64_t samples() const override { return count_; }
  [[nodiscard]] std::size_t input_bytes() const override { return set_->bytes(); }
  [[nodiscard]] std::size_t target_bytes() const override { return sizeof(std::int32_t); }
  [[nodiscard]] std::int64_t losses_per_sample() const override { return 1; }
  void read_input(std::int64_t n, std::byte* to) const override;
  void read_target(std::int64_t n, std::byte* to) const override;

 private:
  [[nodiscard]] std::int64_t image_of(std::int64_t sample) const;

  std::shared_ptr<const ImageSet> set_;
  std::int64_t first_, count_;
  std::optional<SampleOrder> order_;
  std::optional<std::uint64_t> augment_seed_;
};

/// Path for synthetic images (SyntheticSet).
inline constexpr const char* synthetic_images = "synthetic";

struct ImageDataOptions {
  std::string path;  ///< synthetic_images, or an argument of cifar_files()
  int image_size = 224;
  int classes = 1000;
  double validation_split = 0;  ///< fraction of the images, at the end
  bool validates_all = false;   ///< validate on all images if there is no split
  std::optional<std::uint64_t> shuffle_seed;
  std::optional<std::uint64_t> augment_seed;  ///< seed for crops of training images; none: unchanged images
};

struct ImageData {
  std::unique_ptr<SampleSource> training;
  std::unique_ptr<SampleSource> validation;  ///< null: none
  std::int64_t images = 0;
  std::vector<std::filesystem::path> files;  ///< files that were read
};

/// Throws ErrorCode::usage if the image size differs from the model's, ErrorCode::data for files without images or a
/// split that leaves none.
[[nodiscard]] ImageData open_image_data(const ImageDataOptions& options);

}  // namespace ranvier::models

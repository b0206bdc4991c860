// Images as samples for training and validation. Any thread.
#pragma once

#include "models/core/sample_source.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::models {

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

// Images as samples for training and validation. Any thread.
#pragma once

#include "models/sample_source.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::models {

/// The path of images that are computed (synthetic_set.hpp).
inline constexpr const char* synthetic_images = "synthetic";

struct ImageDataOptions {
  std::string path;  ///< synthetic_images, or as cifar_files() takes it
  int image_size = 224;
  int classes = 1000;
  double validation_split = 0;  ///< share of the images, at the end
  bool validates_all = false;   ///< without a split: all of them are for validation, too
  std::optional<std::uint64_t> shuffle_seed;
  std::optional<std::uint64_t> augment_seed;  ///< of crops of training's images; none: they come as they are
};

struct ImageData {
  std::unique_ptr<SampleSource> training;
  std::unique_ptr<SampleSource> validation;  ///< null: none
  std::int64_t images = 0;
  std::vector<std::filesystem::path> files;  ///< that were read
};

/// Throws ErrorCode::usage for images of another size than the model's, ErrorCode::data for files without images and
/// for a split that leaves none.
[[nodiscard]] ImageData open_image_data(const ImageDataOptions& options);

}  // namespace ranvier::models

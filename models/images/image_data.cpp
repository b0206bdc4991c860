#include "models/images/image_data.hpp"

#include "models/images/image_set.hpp"
#include "models/images/image_source.hpp"
#include "runtime/base/error.hpp"

namespace ranvier::models {

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

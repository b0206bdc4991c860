// Synthetic images for measurements (MiCS §5.1.4): noise around a brightness that depends on the class. Computed from
// the image's number, so identical on all ranks without reading. Any thread.
#pragma once

#include "models/images/image_set.hpp"

namespace ranvier::models {

class SyntheticSet final : public ImageSet {
 public:
  static constexpr std::int64_t count = 1281167;  ///< as many as ImageNet has for training

  SyntheticSet(int size, int classes) : size_(size), classes_(classes) {}

  [[nodiscard]] std::int64_t images() const override { return count; }
  [[nodiscard]] int size() const override { return size_; }
  void read(std::int64_t n, std::uint8_t* to) const override;
  [[nodiscard]] std::int32_t label(std::int64_t n) const override;

 private:
  int size_, classes_;
};

}  // namespace ranvier::models

// Images by number, each with its class. Any thread, several at a time.
#pragma once

#include "runtime/files/memory_map.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace ranvier::models {

class ImageSet {
 public:
  virtual ~ImageSet() = default;

  [[nodiscard]] virtual std::int64_t images() const = 0;
  [[nodiscard]] virtual int size() const = 0;  ///< S, pixels across and down
  [[nodiscard]] std::size_t bytes() const {    ///< per image
    return 3 * static_cast<std::size_t>(size()) * static_cast<std::size_t>(size());
  }

  /// Writes image n: bytes [3, S, S].
  virtual void read(std::int64_t n, std::uint8_t* to) const = 0;
  [[nodiscard]] virtual std::int32_t label(std::int64_t n) const = 0;
};

/// The binary files of CIFAR-10 and CIFAR-100 (Krizhevsky 2009): records of a byte for the class and 3072 for an image
/// of 32 × 32 pixels. CIFAR-100's have a byte for one of 20 coarse classes before it, which is not read.
class CifarSet final : public ImageSet {
 public:
  static constexpr int image_size = 32;

  /// Reads files in this order; their size tells CIFAR-10 from CIFAR-100. Throws ErrorCode::data for invalid records,
  /// classes from `classes` upward, or files of both sets, ErrorCode::io for an unreadable file.
  CifarSet(std::vector<std::filesystem::path> files, int classes);

  [[nodiscard]] std::int64_t images() const override { return images_; }
  [[nodiscard]] int size() const override { return image_size; }
  void read(std::int64_t n, std::uint8_t* to) const override;
  [[nodiscard]] std::int32_t label(std::int64_t n) const override;

 private:
  [[nodiscard]] const std::byte* image(std::int64_t n) const;  // behind its class

  std::vector<runtime::MemoryMap> files_;
  std::size_t label_bytes_ = 1;  // before an image; the last one is the class
  std::int64_t images_ = 0;
};

/// Files of a path: the path itself, or a folder's training files (data_batch_1.bin … or train.bin), otherwise all
/// *.bin in the order of their names. Throws ErrorCode::data if there are none.
[[nodiscard]] std::vector<std::filesystem::path> cifar_files(const std::filesystem::path& path);

/// Synthetic images for measurements (MiCS §5.1.4): noise around a brightness that depends on the class. Computed from
/// the image's number, so identical on all ranks without reading.
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

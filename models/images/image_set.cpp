#include "models/images/image_set.hpp"

#include "runtime/base/error.hpp"
#include "runtime/base/philox.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

namespace ranvier::models {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t image_bytes = 3 * std::size_t{CifarSet::image_size} * CifarSet::image_size;

/// Label bytes before the image in a record of CIFAR-10 or CIFAR-100; 0: the file has neither format.
std::size_t label_bytes_of(std::size_t file_bytes) {
  for (const std::size_t labels : {1, 2})
    if (file_bytes > 0 && file_bytes % (labels + image_bytes) == 0) return labels;
  return 0;
}

enum class Drawn : std::uint32_t { label, shade, noise };

/// Four random words for `index` of image or class `n`.
std::array<std::uint32_t, 4> draw(Drawn what, std::int64_t n, std::uint32_t index) {
  const auto number = static_cast<std::uint64_t>(n);
  return runtime::philox({}, {index, static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32),
                              static_cast<std::uint32_t>(what)});
}

}  // namespace

CifarSet::CifarSet(std::vector<fs::path> files, int classes) {
  for (const fs::path& path : files) {
    const runtime::MemoryMap& file = files_.emplace_back(path);
    const std::size_t bytes = file.bytes().size(), labels = label_bytes_of(bytes);
    if (labels == 0)
      fail(ErrorCode::data,
           "{}: {} bytes are not records of {} or {} bytes (labels and an image of 32 × 32 pixels); use the "
           "binary version of CIFAR-10 or CIFAR-100",
           path.string(), bytes, 1 + image_bytes, 2 + image_bytes);
    if (files_.size() > 1 && labels != label_bytes_)
      fail(ErrorCode::data, "{} belongs to CIFAR-{}, but {} to CIFAR-{}; use files of one data set",
           files.front().string(), label_bytes_ == 1 ? 10 : 100, path.string(), labels == 1 ? 10 : 100);
    label_bytes_ = labels;
    const std::size_t record_bytes = labels + image_bytes;
    for (std::size_t at = 0; at < bytes; at += record_bytes) {
      const auto label = std::to_integer<int>(file.bytes()[at + labels - 1]);
      if (label >= classes)
        fail(ErrorCode::data,
             "{}: image {} has class {}, but the model has {} classes; use `classes` {}, or use {}", path.string(),
             at / record_bytes, label, classes, std::max(label + 1, labels == 1 ? 10 : 100),
             labels == 1 ? "CIFAR-10, whose classes are below 10" : "CIFAR-100, whose classes are below 100");
    }
    images_ += static_cast<std::int64_t>(bytes / record_bytes);
  }
}

const std::byte* CifarSet::image(std::int64_t n) const {
  const std::size_t record_bytes = label_bytes_ + image_bytes;
  auto in_file = static_cast<std::size_t>(n);
  for (const runtime::MemoryMap& file : files_) {
    const std::size_t records = file.bytes().size() / record_bytes;
    if (in_file < records) return file.bytes().data() + in_file * record_bytes + label_bytes_;
    in_file -= records;
  }
  fail(ErrorCode::internal, "image is out of range: {} of {}", n, images_);
}

void CifarSet::read(std::int64_t n, std::uint8_t* to) const { std::memcpy(to, image(n), image_bytes); }

std::int32_t CifarSet::label(std::int64_t n) const { return std::to_integer<std::int32_t>(image(n)[-1]); }

std::vector<fs::path> cifar_files(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return {path};
  std::vector<fs::path> all, training;
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    if (entry.path().extension() != ".bin") continue;
    all.push_back(entry.path());
    const std::string name = entry.path().filename().string();
    if (name.starts_with("data_batch_") || name == "train.bin") training.push_back(entry.path());
  }
  std::vector<fs::path>& files = training.empty() ? all : training;
  if (files.empty())
    fail(ErrorCode::data,
         "{}: no image files found; use a folder with the binary version of CIFAR-10 (data_batch_1.bin …) or "
         "CIFAR-100 (train.bin), or one of its files",
         path.string());
  std::sort(files.begin(), files.end());
  return std::move(files);
}

std::int32_t SyntheticSet::label(std::int64_t n) const {
  return static_cast<std::int32_t>(draw(Drawn::label, n, 0)[0] % static_cast<std::uint32_t>(classes_));
}

void SyntheticSet::read(std::int64_t n, std::uint8_t* to) const {
  const auto shades = draw(Drawn::shade, label(n), 0);
  const std::size_t plane = bytes() / 3;
  for (std::size_t i = 0; i < bytes(); i += 16) {
    const auto words = draw(Drawn::noise, n, static_cast<std::uint32_t>(i / 16));
    for (std::size_t at = i; at < std::min(i + 16, bytes()); ++at) {
      const std::uint32_t noise = words[(at - i) / 4] >> 8 * ((at - i) % 4) & 0xffu;
      to[at] = static_cast<std::uint8_t>((noise + (shades[at / plane] & 0xffu)) / 2);
    }
  }
}

}  // namespace ranvier::models

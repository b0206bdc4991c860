#include "models/images/cifar_set.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <cstring>
#include <system_error>
#include <utility>

namespace ranvier::models {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t image_bytes = 3 * std::size_t{CifarSet::image_size} * CifarSet::image_size;
constexpr std::size_t record_bytes = 1 + image_bytes;

}  // namespace

CifarSet::CifarSet(std::vector<fs::path> files, int classes) {
  for (const fs::path& path : files) {
    const runtime::MemoryMap& file = files_.emplace_back(path);
    const std::size_t bytes = file.bytes().size();
    if (bytes == 0 || bytes % record_bytes != 0)
      fail(ErrorCode::data,
           "{}: its {} bytes are no records of {}, a class and an image of 32 × 32 pixels: give CIFAR-10's binary "
           "version",
           path.string(), bytes, record_bytes);
    for (std::size_t at = 0; at < bytes; at += record_bytes) {
      const auto label = std::to_integer<int>(file.bytes()[at]);
      if (label >= classes)
        fail(ErrorCode::data, "{}: image {} is of class {}, and the model knows {}: raise --classes{}",
             path.string(), at / record_bytes, label, classes,
             label < most_classes ? "" : ", or give CIFAR-10's binary version, whose classes are below 10");
    }
    images_ += static_cast<std::int64_t>(bytes / record_bytes);
  }
}

const std::byte* CifarSet::record(std::int64_t n) const {
  auto in_file = static_cast<std::size_t>(n);
  for (const runtime::MemoryMap& file : files_) {
    const std::size_t records = file.bytes().size() / record_bytes;
    if (in_file < records) return file.bytes().data() + in_file * record_bytes;
    in_file -= records;
  }
  fail(ErrorCode::internal, "image {} of {}", n, images_);
}

void CifarSet::read(std::int64_t n, std::uint8_t* to) const { std::memcpy(to, record(n) + 1, image_bytes); }

std::int32_t CifarSet::label(std::int64_t n) const { return std::to_integer<std::int32_t>(*record(n)); }

std::vector<fs::path> cifar_files(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return {path};
  std::vector<fs::path> all, training;
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    if (entry.path().extension() != ".bin") continue;
    all.push_back(entry.path());
    if (entry.path().filename().string().starts_with("data_batch_")) training.push_back(entry.path());
  }
  std::vector<fs::path>& files = training.empty() ? all : training;
  if (files.empty())
    fail(ErrorCode::data,
         "{}: there are no files of images: give a folder with CIFAR-10's binary version (data_batch_1.bin …), or "
         "one "
         "of its files",
         path.string());
  std::sort(files.begin(), files.end());
  return std::move(files);
}

}  // namespace ranvier::models

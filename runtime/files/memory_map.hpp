// Read-only mapping of a file: nothing is copied, and only the parts that are read are loaded. Any thread may read.
// If a mapped file shrinks or its disk fails, the next read ends the process with the exit status of ErrorCode::io
// and a message that names rank and file. So replace shared files by renaming.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace ranvier::runtime {

class MemoryMap {
 public:
  MemoryMap() = default;  ///< no bytes
  /// Throws ErrorCode::io if `path` is not a readable regular file. An empty file gives no bytes.
  explicit MemoryMap(const std::filesystem::path& path);
  MemoryMap(MemoryMap&& other) noexcept;
  MemoryMap& operator=(MemoryMap&& other) noexcept;
  ~MemoryMap();

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::string_view text() const noexcept {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }

  /// Advises the system to read these bytes of the file ahead. The range must lie inside the file.
  void will_need(std::size_t offset, std::size_t bytes) const noexcept;

 private:
  std::span<const std::byte> bytes_;
};

/// Sets the rank in that message (none at first). Call it once, before other threads read.
void set_mapping_rank(int rank) noexcept;

}  // namespace ranvier::runtime

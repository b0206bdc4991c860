// A file as bytes, mapped for reading: nothing is copied, and a rank that reads a part of a large file touches
// that part only. Reading is safe from any thread. If a mapped file shrinks or its disk fails, the next read ends the
// process with the exit status of ErrorCode::io and a message that names rank and file. Replace files that others may
// read by renaming.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace ranvier::runtime {

class MemoryMap {
 public:
  MemoryMap() = default;  ///< no bytes
  /// Throws ErrorCode::io if `path` is not a regular file that can be read. An empty file has no bytes.
  explicit MemoryMap(const std::filesystem::path& path);
  MemoryMap(MemoryMap&& other) noexcept;
  MemoryMap& operator=(MemoryMap&& other) noexcept;
  ~MemoryMap();

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }

  /// Says that these bytes, inside the file, will be read soon: the system may fetch them meanwhile.
  void will_need(std::size_t offset, std::size_t bytes) const noexcept;

 private:
  std::span<const std::byte> bytes_;
};

/// Rank that such a message names; until then none. Once, before other threads read.
void set_mapping_rank(int rank) noexcept;

}  // namespace ranvier::runtime

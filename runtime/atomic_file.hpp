// A file that appears under its name only when it is complete and on disk: until commit(), and after any error
// or crash, what was there before stays, so nobody ever takes half a file for a whole one. A path that is a
// device or a pipe is written directly. One thread at a time.
#pragma once

#include <cstddef>
#include <filesystem>

namespace ranvier::runtime {

class AtomicFile {
 public:
  /// Throws ErrorCode::io if the file cannot be made.
  explicit AtomicFile(std::filesystem::path path);
  /// Removes what was not committed.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Throws ErrorCode::io, with the offset, if the system does not take all of it.
  void append(const void* data, std::size_t bytes);

  /// The same at an offset from the start: what append() would do there, or else anywhere in a file that is no
  /// pipe.
  void write_at(std::size_t offset, const void* data, std::size_t bytes);

  /// Makes the content durable and gives the file its name. Throws ErrorCode::io if the system refuses.
  void commit();

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  [[noreturn]] void refuse(const char* what, std::size_t offset) const;

  std::filesystem::path path_;
  std::filesystem::path partial_;  // empty: written directly
  std::size_t appended_ = 0;       // bytes
  int file_ = -1;
};

/// Throws ErrorCode::io unless a file can be made, or replaced, at `path`; the message names `flag`. What is
/// there stays as it is.
void check_writable(const std::filesystem::path& path, const char* flag);

}  // namespace ranvier::runtime

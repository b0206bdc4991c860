// A file that appears under its name only when it is complete and on disk: until commit(), and after any error
// or crash, what was there before stays, so nobody ever takes half a file for a whole one. A path that is a
// device or a pipe is written directly. One thread at a time.
//
// Until then it is NAME.PID.partial, locked, so that what a killed process leaves can be told from what is being
// written, wherever either of them runs.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>

namespace ranvier::runtime {

class AtomicFile {
 public:
  /// Asked when the system refuses to make the file, or to let it grow on a full disk: whether to try again, after
  /// whatever wait. `error` is errno.
  using Retry = std::function<bool(const std::filesystem::path& path, int error)>;

  /// Throws ErrorCode::io if the file cannot be made. Without `retry` every refusal is final.
  explicit AtomicFile(std::filesystem::path path, Retry retry = nullptr);
  /// Removes what was not committed.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Throws ErrorCode::io, with the offset, if the system does not take all of it.
  void append(const void* data, std::size_t bytes);

  /// Makes the content durable and gives the file its name. Throws ErrorCode::io if the system refuses: a whole file
  /// that cannot have its name is kept beside it, and the message says where.
  void commit();

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  [[noreturn]] void refuse(const char* what, std::size_t offset) const;
  void open();
  /// Whether what errno says is worth another try.
  [[nodiscard]] bool may_retry() const;
  [[noreturn]] void keep(int error);

  std::filesystem::path path_;
  std::filesystem::path partial_;  // empty: written directly
  Retry retry_;
  std::size_t appended_ = 0;  // bytes
  int file_ = -1;
};

/// Removes what killed processes left that were writing `path`. Every AtomicFile does so for its own.
void remove_leftovers(const std::filesystem::path& path);

/// Where a file has to be renamed to for a link at `path` to stay one.
[[nodiscard]] std::filesystem::path target_of(const std::filesystem::path& path);

/// A terminal, /dev/null, a pipe: nothing that could be replaced, or that has a size.
[[nodiscard]] bool is_device(const std::filesystem::path& path);

/// Bytes that may still be written in the folder of `path`, as its file system says; the largest number if it does not.
[[nodiscard]] std::size_t free_bytes_beside(const std::filesystem::path& path);

/// Throws ErrorCode::io unless a file can be made, or replaced, at `path`; the message names `flag`. What is
/// there stays as it is.
void check_writable(const std::filesystem::path& path, const char* flag);

}  // namespace ranvier::runtime

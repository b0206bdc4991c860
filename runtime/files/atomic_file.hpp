// Writes a file that appears under its name only when it is complete and on disk. Until commit(), and after any error
// or crash, the previous file stays. Devices and pipes are written directly. One thread at a time.
//
// The partial file is called NAME.PID.partial and is locked while its process runs. So leftovers of killed processes
// are recognized, on any machine that shares the file system.
#pragma once

#include "runtime/files/file_descriptor.hpp"

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string_view>

namespace ranvier::runtime {

class AtomicFile {
 public:
  /// Called when the system refuses to create the file, or to extend it on a full disk. Returns whether to try again,
  /// after waiting as long as it likes. `error` is errno.
  using Retry = std::function<bool(const std::filesystem::path& path, int error)>;

  /// Throws ErrorCode::io if the file cannot be created. Without `retry` the first refusal is final.
  explicit AtomicFile(std::filesystem::path path, Retry retry = nullptr);
  /// Removes the partial file unless it was committed.
  ~AtomicFile();

  /// Throws ErrorCode::io, with the offset, if not all bytes were written.
  void append(const void* data, std::size_t bytes);

  /// Syncs the content and renames the file to its final name. Throws ErrorCode::io if the system refuses. If only
  /// the rename fails, the complete file stays in the same folder, and the message names it.
  void commit();

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  [[noreturn]] void refuse(const char* what, std::size_t offset) const;
  void open();
  /// Whether to retry after the error in errno.
  [[nodiscard]] bool may_retry() const;
  [[noreturn]] void keep(int error);

  std::filesystem::path path_;
  std::filesystem::path partial_;  // empty: written directly
  Retry retry_;
  std::size_t appended_ = 0;  // bytes
  FileDescriptor file_;
};

/// Writes a complete file. Throws like AtomicFile.
void write_file(const std::filesystem::path& path, std::string_view content);

/// Removes the partial files of killed processes for `path`. Every AtomicFile does so for its own path.
void remove_leftovers(const std::filesystem::path& path);

/// Target of the rename: `path`, or the file that it links to, so that a symbolic link stays one.
[[nodiscard]] std::filesystem::path target_of(const std::filesystem::path& path);

/// Folder of a file.
[[nodiscard]] std::filesystem::path folder_of(const std::filesystem::path& path);

/// Makes new names in a folder durable, if its file system allows opening folders.
void sync_folder(const std::filesystem::path& folder);

/// Whether `path` is a device or pipe (terminal, /dev/null): it has no size and cannot be replaced.
[[nodiscard]] bool is_device(const std::filesystem::path& path);

/// Free bytes on the file system of `path`; the largest number if unknown.
[[nodiscard]] std::size_t free_bytes_beside(const std::filesystem::path& path);

/// Throws ErrorCode::io unless a file can be created or replaced at `path`; the message names `flag`. An existing
/// file is not changed.
void check_writable(const std::filesystem::path& path, const char* flag);

/// Throws ErrorCode::usage, naming `flag`, if a regular file at `path` would be replaced without `overwrite`.
void check_replaced(const std::filesystem::path& path, const char* flag, bool overwrite);

}  // namespace ranvier::runtime

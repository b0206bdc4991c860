// Operating system calls of tiers and checkpoints; tests override them to fail, delay, or lose unsynced data. Errors
// are negative errno values. Any thread.
#pragma once

#include "offload/io_queue.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ranvier::offload {

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  /// Bytes that an unprivileged process may still write on the file system of `folder`.
  [[nodiscard]] virtual std::int64_t free_bytes(const std::filesystem::path& folder) const;

  /// Creates or opens a file for reading and writing, with O_DIRECT if `direct`; returns a descriptor. Other users may
  /// read the file, subject to the umask and its folder.
  [[nodiscard]] virtual int open(const std::filesystem::path& file, bool direct) const;

  /// Allocates `bytes` of disk space for the file, which then reads as zeros. If the file system cannot allocate,
  /// only the size is set.
  [[nodiscard]] virtual int allocate(int file, std::uint64_t bytes) const;

  /// The error matters only if the data is not synced yet.
  virtual int close(int file) const;

  [[nodiscard]] virtual int open_to_read(const std::filesystem::path& file, bool direct) const;
  [[nodiscard]] virtual int open_folder(const std::filesystem::path& folder) const;

  /// Bytes read, possibly fewer than requested.
  [[nodiscard]] virtual std::int64_t read(int file, std::uint64_t offset, std::span<std::byte> to) const;
  [[nodiscard]] virtual std::int64_t write(int file, std::uint64_t offset, std::span<const std::byte> from) const;
  [[nodiscard]] virtual int truncate(int file, std::uint64_t bytes) const;
  /// Syncs a file's content or a folder's names.
  [[nodiscard]] virtual int sync(int file) const;
  /// Takes the only lock of an open file until it is closed; -EWOULDBLOCK if another process has it.
  [[nodiscard]] virtual int lock(int file) const;

  [[nodiscard]] virtual int make_folder(const std::filesystem::path& folder) const;
  [[nodiscard]] virtual int rename(const std::filesystem::path& from, const std::filesystem::path& to) const;
  [[nodiscard]] virtual int remove(const std::filesystem::path& file) const;
  [[nodiscard]] virtual int remove_folder(const std::filesystem::path& folder) const;
  /// Appends the names in a folder, in any order.
  [[nodiscard]] virtual int list(const std::filesystem::path& folder, std::vector<std::string>& names) const;
  /// Size of a regular file; -EINVAL for others.
  [[nodiscard]] virtual std::int64_t size(const std::filesystem::path& file) const;

  /// Reads everything with as many calls as needed; retries after EINTR and EAGAIN. Returns 0 or the error; -ENODATA
  /// if the file is shorter.
  [[nodiscard]] int read_all(int file, std::uint64_t offset, std::span<std::byte> to) const;
  [[nodiscard]] int write_all(int file, std::uint64_t offset, std::span<const std::byte> from) const;

  /// Creates a queue on io_uring if `uring` and available; otherwise on threads, with the `error` of io_uring.
  [[nodiscard]] virtual UringOutcome make_queue(int depth, bool uring) const;
};

/// The operating system. Stateless.
[[nodiscard]] const FileSystem& system_storage();

/// An open file, closed at its end.
class OpenFile {
 public:
  /// Takes the result of open(); negative: an error. `system` must outlive it.
  OpenFile(const FileSystem& system, int file) : system_(system), file_(file) {}
  ~OpenFile() {
    if (file_ >= 0) system_.close(file_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  [[nodiscard]] int get() const noexcept { return file_; }
  [[nodiscard]] int release() noexcept { return std::exchange(file_, -1); }

 private:
  const FileSystem& system_;
  int file_;
};

/// Result of open_blocks(): a file, or the failed call.
struct OpenedFile {
  int file = -1;            ///< descriptor; owned by the caller, also after an error
  int direct_refused = 0;   ///< errno with which O_DIRECT was refused
  int error = 0;            ///< errno
  const char* failed = "";  ///< "open", "allocate space for", "write"
  std::uint64_t free = 0;   ///< bytes, if there is not enough space

  [[nodiscard]] bool full() const noexcept { return error == ENOSPC || error == EDQUOT; }
};

/// Creates a file of `bytes` with allocated space, with O_DIRECT if `direct` and supported. Allocates nothing if there
/// is not enough space.
[[nodiscard]] OpenedFile open_blocks(const FileSystem& system, const std::filesystem::path& file,
                                     std::uint64_t bytes, bool direct);

}  // namespace ranvier::offload

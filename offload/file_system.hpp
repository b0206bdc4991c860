// Operating system calls of block files; tests override them to inject faults. Errors are negative errno values. Any
// thread.
#pragma once

#include "offload/io_queue.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>

namespace ranvier::offload {

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  /// Bytes that an unprivileged process may still write on the file system of `folder`.
  [[nodiscard]] virtual std::int64_t free_bytes(const std::filesystem::path& folder) const;

  /// Creates or opens a file for reading and writing, with O_DIRECT if `direct`. Returns a descriptor.
  [[nodiscard]] virtual int open(const std::filesystem::path& file, bool direct) const;

  /// Allocates `bytes` of disk space for the file, which then reads as zeros. If the file system cannot allocate,
  /// only the size is set.
  [[nodiscard]] virtual int allocate(int file, std::uint64_t bytes) const;

  /// Writes a block of zeros at the start, to test whether the file system supports what open() requested.
  [[nodiscard]] virtual int write_zero_block(int file) const;

  /// The error matters only if the data is not synced yet.
  virtual int close(int file) const;

  [[nodiscard]] virtual UringOutcome make_uring(int depth) const { return make_uring_queue(depth); }
  [[nodiscard]] virtual std::unique_ptr<IoQueue> make_threads(int depth) const { return make_thread_queue(depth); }
};

/// Result of open_blocks(): a file, or the failed call.
struct OpenedFile {
  int file = -1;            ///< descriptor; owned by the caller, also after an error
  int direct_refused = 0;   ///< errno with which O_DIRECT was refused
  int error = 0;            ///< errno
  const char* failed = "";  ///< "open", "allocate space for", "write"
};

/// Creates a file of `bytes` with allocated space, with O_DIRECT if `direct` and supported.
[[nodiscard]] OpenedFile open_blocks(const FileSystem& system, const std::filesystem::path& file,
                                     std::uint64_t bytes, bool direct);

/// Creates a queue on io_uring if `uring` and available; otherwise on threads, with the `error` of io_uring.
[[nodiscard]] UringOutcome make_queue(const FileSystem& system, int depth, bool uring);

}  // namespace ranvier::offload

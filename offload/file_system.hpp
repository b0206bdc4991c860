// What files of whole blocks ask of the operating system, as it is; tests derive from it and break one thing or
// another. Errors are negative errno values. Any thread.
#pragma once

#include "offload/io_queue.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>

namespace ranvier::offload {

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  /// Bytes that an unprivileged process may still write in the file system of `folder`.
  [[nodiscard]] virtual std::int64_t free_bytes(const std::filesystem::path& folder) const;

  /// Makes, or opens, a file for reading and writing, past the system's cache if `direct`. A descriptor.
  [[nodiscard]] virtual int open(const std::filesystem::path& file, bool direct) const;

  /// Takes `bytes` of disk for the file, which then has that size and holds zeros. Where a file system has no way
  /// to do that the size is set, and space is taken as it is written.
  [[nodiscard]] virtual int allocate(int file, std::uint64_t bytes) const;

  /// Writes a block of zeros at the beginning: whether the file system takes what open() promised.
  [[nodiscard]] virtual int write_zero_block(int file) const;

  /// Only the error of a close after which everything is on disk says anything.
  virtual int close(int file) const;

  [[nodiscard]] virtual UringOutcome make_uring(int depth) const { return make_uring_queue(depth); }
  [[nodiscard]] virtual std::unique_ptr<IoQueue> make_threads(int depth) const { return make_thread_queue(depth); }
};

/// A file that open_blocks() made, or what it could not do for it.
struct OpenedFile {
  int file = -1;            ///< descriptor; stays the caller's after an error, too
  int direct_refused = 0;   ///< errno with which the file system refused to be written past the system's cache
  int error = 0;            ///< errno
  const char* failed = "";  ///< "open", "take the space for", "write"
};

/// Makes a file of `bytes` whose space is taken, past the system's cache where `direct` is asked for and granted.
[[nodiscard]] OpenedFile open_blocks(const FileSystem& system, const std::filesystem::path& file,
                                     std::uint64_t bytes, bool direct);

/// A queue on io_uring if `uring`, or else, and where that is refused with `error`, on threads.
[[nodiscard]] UringOutcome make_queue(const FileSystem& system, int depth, bool uring);

}  // namespace ranvier::offload

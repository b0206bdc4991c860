// What the file tier asks of the operating system, as it is; tests derive from it and break one thing or another.
// Errors are negative errno values. Any thread.
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

  [[nodiscard]] virtual UringOutcome make_uring(int depth) const { return make_uring_queue(depth); }
  [[nodiscard]] virtual std::unique_ptr<IoQueue> make_threads(int depth) const { return make_thread_queue(depth); }
};

}  // namespace ranvier::offload

// Operating system calls of checkpoints; tests override them to fail, delay, or lose unsynced data. Errors are
// negative errno values. Any thread.
#pragma once

#include "offload/file_system.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace ranvier::offload {

class CheckpointStorage : public FileSystem {
 public:
  /// Other users may read the file, subject to the umask.
  [[nodiscard]] int open(const std::filesystem::path& file, bool direct) const override;
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
};

/// The operating system. Stateless.
[[nodiscard]] const CheckpointStorage& system_storage();

}  // namespace ranvier::offload

// What checkpoints ask of the operating system, as it is; tests derive from it and refuse, delay, or lose what was not
// synced. Errors are negative errno values. Any thread.
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
  /// Others may read what open() makes, as far as the process's mask lets them.
  [[nodiscard]] int open(const std::filesystem::path& file, bool direct) const override;
  [[nodiscard]] virtual int open_to_read(const std::filesystem::path& file, bool direct) const;
  [[nodiscard]] virtual int open_folder(const std::filesystem::path& folder) const;

  /// Bytes that were moved, which may be fewer than asked for.
  [[nodiscard]] virtual std::int64_t read(int file, std::uint64_t offset, std::span<std::byte> to) const;
  [[nodiscard]] virtual std::int64_t write(int file, std::uint64_t offset, std::span<const std::byte> from) const;
  [[nodiscard]] virtual int truncate(int file, std::uint64_t bytes) const;
  /// Brings a file's content, or a folder's names, to the disk.
  [[nodiscard]] virtual int sync(int file) const;
  /// Takes the one lock of an open file, for as long as it is open; -EWOULDBLOCK if another process has it.
  [[nodiscard]] virtual int lock(int file) const;

  [[nodiscard]] virtual int make_folder(const std::filesystem::path& folder) const;
  [[nodiscard]] virtual int rename(const std::filesystem::path& from, const std::filesystem::path& to) const;
  [[nodiscard]] virtual int remove(const std::filesystem::path& file) const;
  [[nodiscard]] virtual int remove_folder(const std::filesystem::path& folder) const;
  /// Adds the names in a folder, in any order.
  [[nodiscard]] virtual int list(const std::filesystem::path& folder, std::vector<std::string>& names) const;
  /// Of a plain file; -EINVAL if it is something else.
  [[nodiscard]] virtual std::int64_t size(const std::filesystem::path& file) const;

  /// All of it, by as many calls as that takes; asks again after EINTR and EAGAIN. 0, or the error: -ENODATA where the
  /// file ends before.
  [[nodiscard]] int read_all(int file, std::uint64_t offset, std::span<std::byte> to) const;
  [[nodiscard]] int write_all(int file, std::uint64_t offset, std::span<const std::byte> from) const;
};

/// The system's own. It has no state.
[[nodiscard]] const CheckpointStorage& system_storage();

}  // namespace ranvier::offload

#include "offload/checkpoint/storage.hpp"

#include "offload/io_queue.hpp"
#include "offload/tier.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>
#include <thread>

namespace ranvier::offload {
namespace {

int outcome(int result) { return result < 0 ? -errno : result; }

/// Calls `move(at)` until all of `bytes` starting at `at` are moved.
template <typename Move>
int move_all(std::size_t bytes, Move&& move) {
  int attempts = 0;
  for (std::size_t at = 0; at < bytes;) {
    const std::int64_t moved = move(at);
    if (moved == 0) return -ENODATA;
    if (moved > 0) {
      // Short transfer: the rest starts on a block if possible, as O_DIRECT requires.
      const auto count = static_cast<std::size_t>(moved);
      at +=
          at + count == bytes || count < Tier::block_bytes ? count : count / Tier::block_bytes * Tier::block_bytes;
      attempts = 0;
      continue;
    }
    if ((moved != -EINTR && moved != -EAGAIN) || ++attempts == max_attempts) return static_cast<int>(moved);
    if (moved == -EAGAIN) std::this_thread::sleep_for(pause_before(attempts));
  }
  return 0;
}

}  // namespace

int CheckpointStorage::open(const std::filesystem::path& file, bool direct) const {
  return outcome(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | (direct ? O_DIRECT : 0), 0666));
}

int CheckpointStorage::open_to_read(const std::filesystem::path& file, bool direct) const {
  return outcome(::open(file.c_str(), O_RDONLY | O_CLOEXEC | (direct ? O_DIRECT : 0)));
}

int CheckpointStorage::open_folder(const std::filesystem::path& folder) const {
  return outcome(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

std::int64_t CheckpointStorage::read(int file, std::uint64_t offset, std::span<std::byte> to) const {
  const ssize_t count = ::pread(file, to.data(), to.size(), static_cast<off_t>(offset));
  return count < 0 ? -errno : count;
}

std::int64_t CheckpointStorage::write(int file, std::uint64_t offset, std::span<const std::byte> from) const {
  const ssize_t count = ::pwrite(file, from.data(), from.size(), static_cast<off_t>(offset));
  return count < 0 ? -errno : count;
}

int CheckpointStorage::truncate(int file, std::uint64_t bytes) const {
  return outcome(::ftruncate(file, static_cast<off_t>(bytes)));
}

int CheckpointStorage::sync(int file) const { return outcome(::fsync(file)); }

int CheckpointStorage::lock(int file) const { return outcome(::flock(file, LOCK_EX | LOCK_NB)); }

int CheckpointStorage::make_folder(const std::filesystem::path& folder) const {
  return outcome(::mkdir(folder.c_str(), 0777));
}

int CheckpointStorage::rename(const std::filesystem::path& from, const std::filesystem::path& to) const {
  return outcome(::rename(from.c_str(), to.c_str()));
}

int CheckpointStorage::remove(const std::filesystem::path& file) const { return outcome(::unlink(file.c_str())); }

int CheckpointStorage::remove_folder(const std::filesystem::path& folder) const {
  return outcome(::rmdir(folder.c_str()));
}

int CheckpointStorage::list(const std::filesystem::path& folder, std::vector<std::string>& names) const {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    names.push_back(entry->path().filename().string());
  return -error.value();
}

std::int64_t CheckpointStorage::size(const std::filesystem::path& file) const {
  struct stat status{};
  if (::lstat(file.c_str(), &status) != 0) return -errno;
  return S_ISREG(status.st_mode) ? static_cast<std::int64_t>(status.st_size) : -EINVAL;
}

int CheckpointStorage::read_all(int file, std::uint64_t offset, std::span<std::byte> to) const {
  return move_all(to.size(), [&](std::size_t at) { return read(file, offset + at, to.subspan(at)); });
}

int CheckpointStorage::write_all(int file, std::uint64_t offset, std::span<const std::byte> from) const {
  return move_all(from.size(), [&](std::size_t at) { return write(file, offset + at, from.subspan(at)); });
}

const CheckpointStorage& system_storage() {
  static const CheckpointStorage storage;
  return storage;
}

}  // namespace ranvier::offload

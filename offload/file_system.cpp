#include "offload/file_system.hpp"

#include "offload/tier.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
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

std::int64_t FileSystem::free_bytes(const std::filesystem::path& folder) const {
  struct statvfs status{};
  if (::statvfs(folder.c_str(), &status) != 0) return -errno;
  return static_cast<std::int64_t>(status.f_bavail) * static_cast<std::int64_t>(status.f_frsize);
}

int FileSystem::allocate(int file, std::uint64_t bytes) const {
  if (bytes == 0) return 0;
  const auto size = static_cast<off_t>(bytes);
  // posix_fallocate would write into every block on file systems that cannot reserve blocks.
  int result = 0;
  do {
    result = ::fallocate(file, 0, 0, size);
  } while (result != 0 && errno == EINTR);
  if (result != 0 && (errno == EOPNOTSUPP || errno == ENOSYS)) result = ::ftruncate(file, size);
  return result == 0 ? 0 : -errno;
}

int FileSystem::close(int file) const { return outcome(::close(file)); }

int FileSystem::open(const std::filesystem::path& file, bool direct) const {
  return outcome(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | (direct ? O_DIRECT : 0), 0666));
}

int FileSystem::open_to_read(const std::filesystem::path& file, bool direct) const {
  return outcome(::open(file.c_str(), O_RDONLY | O_CLOEXEC | (direct ? O_DIRECT : 0)));
}

int FileSystem::open_folder(const std::filesystem::path& folder) const {
  return outcome(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

std::int64_t FileSystem::read(int file, std::uint64_t offset, std::span<std::byte> to) const {
  const ssize_t count = ::pread(file, to.data(), to.size(), static_cast<off_t>(offset));
  return count < 0 ? -errno : count;
}

std::int64_t FileSystem::write(int file, std::uint64_t offset, std::span<const std::byte> from) const {
  const ssize_t count = ::pwrite(file, from.data(), from.size(), static_cast<off_t>(offset));
  return count < 0 ? -errno : count;
}

int FileSystem::truncate(int file, std::uint64_t bytes) const {
  return outcome(::ftruncate(file, static_cast<off_t>(bytes)));
}

int FileSystem::sync(int file) const { return outcome(::fsync(file)); }

int FileSystem::lock(int file) const { return outcome(::flock(file, LOCK_EX | LOCK_NB)); }

int FileSystem::make_folder(const std::filesystem::path& folder) const {
  return outcome(::mkdir(folder.c_str(), 0777));
}

int FileSystem::rename(const std::filesystem::path& from, const std::filesystem::path& to) const {
  return outcome(::rename(from.c_str(), to.c_str()));
}

int FileSystem::remove(const std::filesystem::path& file) const { return outcome(::unlink(file.c_str())); }

int FileSystem::remove_folder(const std::filesystem::path& folder) const {
  return outcome(::rmdir(folder.c_str()));
}

int FileSystem::list(const std::filesystem::path& folder, std::vector<std::string>& names) const {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    names.push_back(entry->path().filename().string());
  return -error.value();
}

std::int64_t FileSystem::size(const std::filesystem::path& file) const {
  struct stat status{};
  if (::lstat(file.c_str(), &status) != 0) return -errno;
  return S_ISREG(status.st_mode) ? static_cast<std::int64_t>(status.st_size) : -EINVAL;
}

int FileSystem::read_all(int file, std::uint64_t offset, std::span<std::byte> to) const {
  return move_all(to.size(), [&](std::size_t at) { return read(file, offset + at, to.subspan(at)); });
}

int FileSystem::write_all(int file, std::uint64_t offset, std::span<const std::byte> from) const {
  return move_all(from.size(), [&](std::size_t at) { return write(file, offset + at, from.subspan(at)); });
}

const FileSystem& system_storage() {
  static const FileSystem storage;
  return storage;
}

UringOutcome FileSystem::make_queue(int depth, bool uring) const {
  UringOutcome outcome;
  if (uring) outcome = make_uring_queue(depth);
  if (!outcome.queue) outcome.queue = make_thread_queue(depth);
  return outcome;
}

namespace {

std::uint64_t free_beside(const FileSystem& system, const std::filesystem::path& file, std::uint64_t unknown) {
  const std::int64_t free = system.free_bytes(file.parent_path());
  return free < 0 ? unknown : static_cast<std::uint64_t>(free);
}

OpenedFile try_to_open(const FileSystem& system, const std::filesystem::path& file, std::uint64_t bytes,
                       bool direct) {
  OpenedFile opened;
  const auto attempt = [&](const char* what, int result) {
    if (result < 0) {
      opened.error = -result;
      opened.failed = what;
    }
    return result >= 0;
  };
  // A first write shows whether the file system supports what open() requested.
  alignas(Tier::block_bytes) static constexpr std::array<std::byte, Tier::block_bytes> zeros{};
  opened.file = system.open(file, direct);
  if (attempt("open", opened.file) && attempt("allocate space for", system.allocate(opened.file, bytes)) &&
      bytes > 0)
    static_cast<void>(attempt("write", system.write_all(opened.file, 0, zeros)));
  // Free the space for the next attempt, whose check would count it as used.
  if (opened.file >= 0 && opened.error != 0) static_cast<void>(system.truncate(opened.file, 0));
  if (opened.file < 0) opened.file = -1;
  if (opened.full()) opened.free = free_beside(system, file, 0);
  return opened;
}

}  // namespace

OpenedFile open_blocks(const FileSystem& system, const std::filesystem::path& file, std::uint64_t bytes,
                       bool direct) {
  if (const std::uint64_t free = free_beside(system, file, bytes); free < bytes) {
    OpenedFile full;
    full.error = ENOSPC;
    full.free = free;
    return full;
  }
  OpenedFile opened = try_to_open(system, file, bytes, direct);
  if (!direct || opened.error != EINVAL) return opened;
  if (opened.file >= 0) system.close(opened.file);
  opened = try_to_open(system, file, bytes, false);
  opened.direct_refused = EINVAL;
  return opened;
}

}  // namespace ranvier::offload

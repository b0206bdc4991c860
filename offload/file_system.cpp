#include "offload/file_system.hpp"

#include "offload/tier.hpp"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace ranvier::offload {

std::int64_t FileSystem::free_bytes(const std::filesystem::path& folder) const {
  struct statvfs status{};
  if (::statvfs(folder.c_str(), &status) != 0) return -errno;
  return static_cast<std::int64_t>(status.f_bavail) * static_cast<std::int64_t>(status.f_frsize);
}

int FileSystem::open(const std::filesystem::path& file, bool direct) const {
  const int descriptor = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | (direct ? O_DIRECT : 0), 0600);
  return descriptor < 0 ? -errno : descriptor;
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

int FileSystem::write_zero_block(int file) const {
  alignas(Tier::block_bytes) static constexpr std::array<std::byte, Tier::block_bytes> zeros{};
  const ssize_t count = ::pwrite(file, zeros.data(), zeros.size(), 0);
  if (count < 0) return -errno;
  return count == static_cast<ssize_t>(zeros.size()) ? 0 : -EIO;
}

int FileSystem::close(int file) const { return ::close(file) == 0 ? 0 : -errno; }

OpenedFile open_blocks(const FileSystem& system, const std::filesystem::path& file, std::uint64_t bytes,
                       bool direct) {
  OpenedFile opened;
  const auto attempt = [&](const char* what, int result) {
    if (result < 0) {
      opened.error = -result;
      opened.failed = what;
    }
    return result >= 0;
  };
  opened.file = system.open(file, direct);
  if (attempt("open", opened.file) && attempt("allocate space for", system.allocate(opened.file, bytes)) &&
      bytes > 0)
    static_cast<void>(attempt("write", system.write_zero_block(opened.file)));
  if (opened.file < 0) opened.file = -1;
  if (!direct || opened.error != EINVAL) return opened;
  if (opened.file >= 0) system.close(opened.file);
  opened = open_blocks(system, file, bytes, false);
  opened.direct_refused = EINVAL;
  return opened;
}

UringOutcome make_queue(const FileSystem& system, int depth, bool uring) {
  UringOutcome outcome;
  if (uring) outcome = system.make_uring(depth);
  if (!outcome.queue) outcome.queue = system.make_threads(depth);
  return outcome;
}

}  // namespace ranvier::offload

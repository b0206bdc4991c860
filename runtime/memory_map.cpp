#include "runtime/memory_map.hpp"

#include "runtime/error.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace ranvier::runtime {

MemoryMap::MemoryMap(const std::filesystem::path& path) {
  const auto refuse = [&path](const char* what) {
    fail(ErrorCode::io, "{}: cannot {}: {}; check the path and its permissions", path.string(), what,
         std::strerror(errno));
  };
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe must not block here
  if (file < 0) refuse("open");
  struct stat status{};
  void* mapped = nullptr;
  const bool regular = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode);
  const auto size = static_cast<std::size_t>(status.st_size);
  if (regular && size > 0) mapped = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);
  const int error = errno;
  ::close(file);
  errno = error;
  if (!regular) fail(ErrorCode::io, "{}: not a regular file", path.string());
  if (mapped == MAP_FAILED) refuse("map");
  if (mapped != nullptr) bytes_ = {static_cast<const std::byte*>(mapped), size};
}

void MemoryMap::will_need(std::size_t offset, std::size_t bytes) const noexcept {
  if (bytes == 0) return;
  static const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t begin = offset / page * page;  // only advice: what the system answers changes nothing
  ::madvise(const_cast<std::byte*>(bytes_.data()) + begin, offset + bytes - begin, MADV_WILLNEED);
}

MemoryMap::MemoryMap(MemoryMap&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MemoryMap& MemoryMap::operator=(MemoryMap&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MemoryMap::~MemoryMap() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace ranvier::runtime

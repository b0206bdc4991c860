#include "runtime/atomic_file.hpp"

#include "runtime/error.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace ranvier::runtime {
namespace {

namespace fs = std::filesystem;

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

/// A terminal, /dev/null, a pipe: nothing that could be replaced.
bool is_device(const fs::path& path) {
  std::error_code ignored;
  const auto type = fs::status(path, ignored).type();
  return type == fs::file_type::character || type == fs::file_type::fifo || type == fs::file_type::block;
}

/// Where renaming to has to go for a link to stay a link.
fs::path target_of(const fs::path& path) {
  std::error_code error;
  if (!fs::is_symlink(path, error)) return path;
  auto target = fs::weakly_canonical(path, error);
  return error ? path : target;
}

}  // namespace

AtomicFile::AtomicFile(fs::path path) : path_(target_of(path)) {
  if (!is_device(path_)) {
    partial_ = path_;
    partial_ += fmt::format(".{}.partial", ::getpid());
  }
  const auto& name = partial_.empty() ? path_ : partial_;
  file_ = ::open(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file_ < 0) refuse("create", 0);
}

AtomicFile::~AtomicFile() {
  if (file_ < 0) return;
  ::close(file_);
  if (!partial_.empty()) ::unlink(partial_.c_str());
}

void AtomicFile::append(const void* data, std::size_t bytes) {
  const auto* from = static_cast<const std::byte*>(data);
  while (bytes > 0) {
    const ssize_t count = ::write(file_, from, bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) refuse("write", appended_);
    from += count;
    bytes -= static_cast<std::size_t>(count);
    appended_ += static_cast<std::size_t>(count);
  }
}

void AtomicFile::write_at(std::size_t offset, const void* data, std::size_t bytes) {
  if (offset == appended_) return append(data, bytes);
  const auto* from = static_cast<const std::byte*>(data);
  while (bytes > 0) {
    const ssize_t count = ::pwrite(file_, from, bytes, static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) refuse("write", offset);
    from += count;
    offset += static_cast<std::size_t>(count);
    bytes -= static_cast<std::size_t>(count);
  }
}

void AtomicFile::commit() {
  if (!partial_.empty()) {
    if (::fsync(file_) != 0) refuse("write", appended_);
    if (::rename(partial_.c_str(), path_.c_str()) != 0) refuse("replace", appended_);
  }
  ::close(file_);
  file_ = -1;
  // The name is durable once its folder is; some file systems do not let folders be opened, and then it has
  // to do as it is.
  const int folder = ::open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;
  ::fsync(folder);
  ::close(folder);
}

void AtomicFile::refuse(const char* what, std::size_t offset) const {
  fail(ErrorCode::io, "{}: cannot {} it, at offset {}: {}; check the folder's space and permissions",
       path_.string(), what, offset, std::strerror(errno));
}

void check_writable(const fs::path& path, const char* flag) {
  const auto refuse = [&](const char* why) {
    fail(ErrorCode::io, "{} {}: cannot be written: {}; give a path in a folder that you may write", flag,
         path.string(), why);
  };
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) refuse("it is a folder");
  if (fs::exists(path, ignored) && ::access(path.c_str(), W_OK) != 0) refuse(std::strerror(errno));
  if (is_device(path)) return;
  // Only making a file shows that one can be made: permissions do not tell of read-only or full disks.
  fs::path probe = target_of(path);
  probe += fmt::format(".{}.probe", ::getpid());
  const int file = ::open(probe.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) refuse(std::strerror(errno));
  ::close(file);
  ::unlink(probe.c_str());
}

}  // namespace ranvier::runtime

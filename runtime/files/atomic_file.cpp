#include "runtime/files/atomic_file.hpp"

#include "runtime/base/error.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ranvier::runtime {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view partial_end = ".partial", probe_end = ".probe";

/// Whether `file` is NAME.DIGITS.partial or NAME.DIGITS.probe for `name`.
bool is_partial_of(std::string_view file, std::string_view name) {
  if (!file.starts_with(name)) return false;
  file.remove_prefix(name.size());
  for (const std::string_view end : {partial_end, probe_end}) {
    if (!file.ends_with(end) || file.size() <= end.size() + 1 || file.front() != '.') continue;
    const std::string_view digits = file.substr(1, file.size() - end.size() - 1);
    return std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  }
  return false;
}

bool is_still(int file, const fs::path& name) {
  struct stat mine{}, there{};
  return ::fstat(file, &mine) == 0 && ::lstat(name.c_str(), &there) == 0 && mine.st_ino == there.st_ino &&
         mine.st_dev == there.st_dev;
}

}  // namespace

fs::path target_of(const fs::path& path) {
  std::error_code error;
  if (!fs::is_symlink(path, error)) return path;
  auto target = fs::weakly_canonical(path, error);
  return error ? path : target;
}

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

void sync_folder(const fs::path& folder) {
  if (const FileDescriptor file(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)); file)
    ::fsync(file.get());
}

void write_file(const fs::path& path, std::string_view content) {
  AtomicFile file(path);
  file.append(content.data(), content.size());
  file.commit();
}

/// The writer of a partial file holds its lock, so a file that can be locked is a leftover.
void remove_leftovers(const fs::path& given) {
  const fs::path path = target_of(given);
  const std::string name = path.filename().string();
  std::error_code ignored;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder_of(path), ignored)) {
    if (is_partial_of(entry.path().filename().string(), name)) found.push_back(entry.path());
  }
  for (const fs::path& leftover : found) {
    const FileDescriptor file(::open(leftover.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (file && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0 && is_still(file.get(), leftover))
      ::unlink(leftover.c_str());
  }
}

AtomicFile::AtomicFile(fs::path path, Retry retry) : path_(target_of(path)), retry_(std::move(retry)) {
  if (!is_device(path_)) {
    partial_ = path_;
    partial_ += fmt::format(".{}{}", ::getpid(), partial_end);
    remove_leftovers(path_);
  }
  while (!file_) {
    open();
    const int error = errno;
    if (file_ || (retry_ && retry_(path_, error))) continue;
    errno = error;
    refuse("create", 0);
  }
}

void AtomicFile::open() {
  const auto& name = partial_.empty() ? path_ : partial_;
  // Each attempt is lost to a process that removed the file as a leftover before it was locked.
  constexpr int attempts = 100;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    file_ = FileDescriptor(
        ::open(name.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | (partial_.empty() ? O_TRUNC : 0), 0666));
    if (!file_ || partial_.empty()) return;
    const bool locked = ::flock(file_.get(), LOCK_EX | LOCK_NB) == 0;
    const bool others = !locked && errno == EWOULDBLOCK;  // a process with this ID on another machine writes it
    // Without locks on this file system, no process takes it for a leftover either.
    if (!others && (!locked || is_still(file_.get(), name)) && ::ftruncate(file_.get(), 0) == 0) return;
    file_ = FileDescriptor();
    errno = EBUSY;
    if (others) return;
  }
}

bool AtomicFile::may_retry() const {
  const int error = errno;
  const bool again = retry_ && (error == ENOSPC || error == EDQUOT) && retry_(path_, error);
  errno = error;
  return again;
}

AtomicFile::~AtomicFile() {
  if (file_ && !partial_.empty()) ::unlink(partial_.c_str());
}

void AtomicFile::append(const void* data, std::size_t bytes) {
  const auto* from = static_cast<const std::byte*>(data);
  while (bytes > 0) {
    const ssize_t count = ::write(file_.get(), from, bytes);
    if (count < 0 && (errno == EINTR || may_retry())) continue;
    if (count <= 0) refuse("write", appended_);
    from += count;
    bytes -= static_cast<std::size_t>(count);
    appended_ += static_cast<std::size_t>(count);
  }
}

void AtomicFile::commit() {
  if (!partial_.empty()) {
    if (::fsync(file_.get()) != 0) refuse("write", appended_);
    if (::rename(partial_.c_str(), path_.c_str()) != 0) keep(errno);
  }
  file_ = FileDescriptor();
  sync_folder(folder_of(path_));
}

/// Renames the complete file to a name that no later writer removes as a leftover.
void AtomicFile::keep(int error) {
  fs::path kept = path_;
  kept += fmt::format(".{}.whole", ::getpid());
  if (::rename(partial_.c_str(), kept.c_str()) != 0) kept = partial_;
  file_ = FileDescriptor();
  fail(ErrorCode::io, "cannot replace {0}: {1}; the new content is complete in {2}; rename {2} to {0}",
       path_.string(), std::strerror(error), kept.string());
}

void AtomicFile::refuse(const char* what, std::size_t offset) const {
  fail(ErrorCode::io, "cannot {1} {0} at offset {2}: {3}; check the folder's space and permissions", path_.string(),
       what, offset, std::strerror(errno));
}

bool is_device(const fs::path& path) {
  std::error_code ignored;
  const auto type = fs::status(path, ignored).type();
  return type == fs::file_type::character || type == fs::file_type::fifo || type == fs::file_type::block;
}

std::size_t free_bytes_beside(const fs::path& path) {
  std::error_code unknown;
  const fs::space_info space = fs::space(folder_of(target_of(path)), unknown);
  return unknown ? std::numeric_limits<std::size_t>::max() : static_cast<std::size_t>(space.available);
}

void check_writable(const fs::path& path, const char* flag) {
  const auto refuse = [&](const char* why) {
    fail(ErrorCode::io, "{} {} cannot be written: {}; use a path in a writable folder", flag, path.string(), why);
  };
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) refuse("is a folder");
  if (fs::exists(path, ignored) && ::access(path.c_str(), W_OK) != 0) refuse(std::strerror(errno));
  if (is_device(path)) return;
  // Only creating a file proves that it is possible: permissions do not show read-only or full disks.
  fs::path probe = target_of(path);
  probe += fmt::format(".{}{}", ::getpid(), probe_end);
  const int file = ::open(probe.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) refuse(std::strerror(errno));
  ::close(file);
  ::unlink(probe.c_str());
}

void check_replaced(const fs::path& path, const char* flag, bool overwrite) {
  std::error_code unknown;
  if (!overwrite && fs::is_regular_file(path, unknown))
    fail(ErrorCode::usage, "{} exists: {}; add `overwrite` or use another path", flag, path.string());
}

}  // namespace ranvier::runtime

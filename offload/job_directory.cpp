#include "offload/job_directory.hpp"

#include "runtime/base/error.hpp"
#include "runtime/host/cores.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

namespace ranvier::offload {
namespace {

namespace fs = std::filesystem;
using runtime::FileDescriptor;

constexpr std::string_view prefix = "ranvier-offload.";
constexpr const char* lock_name = "lock";

/// Returns whether a folder named PREFIX HOST .rankR.RANDOM belongs to `host`. Host names may contain dots.
bool is_of_host(std::string_view name, std::string_view host) {
  if (!name.starts_with(prefix)) return false;
  for (int field = 0; field < 2; ++field) name = name.substr(0, name.rfind('.'));
  return name.size() == prefix.size() + host.size() && name.ends_with(host);
}

/// Takes the lock in a folder and returns its descriptor; none with errno if a living process holds it. `unlocked_too`:
/// on a file system without locks, accept the file without a lock.
FileDescriptor lock(int folder, bool unlocked_too) {
  FileDescriptor file(::openat(folder, lock_name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return file;
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0 && !(unlocked_too && errno != EWOULDBLOCK)) return {};
  // Another job may have taken this folder for a dead one, and removed the file before it was locked.
  struct stat mine{}, there{};
  if (::fstat(file.get(), &mine) != 0 || ::fstatat(folder, lock_name, &there, AT_SYMLINK_NOFOLLOW) != 0 ||
      mine.st_ino != there.st_ino)
    return {};
  return file;
}

/// Removes only files that a JobDirectory creates; with other files in it, the folder stays.
bool remove(int parent, const char* name, int folder) {
  ::unlinkat(folder, JobDirectory::file_name, 0);
  ::unlinkat(folder, lock_name, 0);
  return ::unlinkat(parent, name, AT_REMOVEDIR) == 0;
}

int clear_leftovers(const fs::path& parent) {
  const FileDescriptor parent_file(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!parent_file) return 0;
  const std::string here = runtime::host_name();
  std::error_code ignored;
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(parent, ignored))
    if (std::string name = entry.path().filename().string(); is_of_host(name, here))
      names.push_back(std::move(name));

  int cleared = 0;
  for (const std::string& name : names) {
    const FileDescriptor folder(
        ::openat(parent_file.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
    struct stat status{};
    if (!folder || ::fstat(folder.get(), &status) != 0 || status.st_uid != ::geteuid()) continue;
    const FileDescriptor held = lock(folder.get(), false);  // without locks, the folder may belong to a living job
    if (!held) continue;
    if (remove(parent_file.get(), name.c_str(), folder.get())) ++cleared;
  }
  return cleared;
}

}  // namespace

JobDirectory::JobDirectory(const fs::path& parent, int rank) : cleared_(clear_leftovers(parent)) {
  std::error_code error;
  if (!fs::is_directory(parent, error))
    fail(ErrorCode::io, "{}: {}; create the folder, or use `nvme` with another folder", parent.string(),
         error ? error.message() : "not a folder");
  constexpr int attempts = 100;  // an attempt fails if another job removes the folder before it is locked
  for (int attempt = 0; attempt < attempts && !lock_; ++attempt) {
    std::string name = (parent / fmt::format("{}{}.rank{}.XXXXXX", prefix, runtime::host_name(), rank)).string();
    if (::mkdtemp(name.data()) == nullptr) break;
    path_ = name;
    const FileDescriptor folder(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder) lock_ = lock(folder.get(), true);
  }
  if (!lock_)
    fail(ErrorCode::io, "{}: cannot create a folder for rank {}: {}; use `nvme` with a writable folder",
         parent.string(), rank, std::strerror(errno));
}

JobDirectory::~JobDirectory() {
  const FileDescriptor parent(::open(path_.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const FileDescriptor folder(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (parent && folder) remove(parent.get(), path_.filename().c_str(), folder.get());
}

}  // namespace ranvier::offload

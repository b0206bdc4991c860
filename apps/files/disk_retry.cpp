#include "apps/files/disk_retry.hpp"

#include "runtime/base/console.hpp"
#include "runtime/device/arena.hpp"
#include "runtime/files/atomic_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>

namespace ranvier::apps {

bool DiskRetry::operator()(const std::filesystem::path& path, int error) {
  using namespace std::chrono_literals;
  constexpr auto pause = 200ms;
  const auto now = std::chrono::steady_clock::now();
  if (now - refused_ > 5 * pause) waiting_since_.reset();  // a write succeeded meanwhile
  refused_ = now;
  std::error_code failed;
  if (!path.parent_path().empty()) std::filesystem::create_directories(path.parent_path(), failed);
  if (!waiting_since_) {
    waiting_since_ = now;
    runtime::print_stderr(
        fmt::format("ranvier: warning: cannot write {}: {}; {} {}, {} are free; {} within {:g} s (--timeout), or "
                    "the file is not saved\n",
                    path.string(), std::strerror(error), what_, runtime::format_bytes(bytes_),
                    runtime::format_bytes(runtime::free_bytes_beside(path)),
                    error == ENOSPC || error == EDQUOT ? "free space" : "fix the cause",
                    std::chrono::duration<double>(patience_).count()));
  }
  if (now - *waiting_since_ >= patience_) return false;
  std::this_thread::sleep_for(std::min<runtime::Duration>(pause, patience_));
  refused_ = std::chrono::steady_clock::now();
  return true;
}

}  // namespace ranvier::apps

#include "runtime/files/record_file.hpp"

#include "runtime/base/console.hpp"
#include "runtime/base/error.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>
#include <utility>

namespace ranvier::runtime {
namespace {

/// Whether the last line is incomplete: its writer may have been killed.
bool ends_within_a_line(const std::filesystem::path& path) {
  std::error_code failed;
  if (!std::filesystem::is_regular_file(path, failed)) return false;
  std::ifstream file(path, std::ios::binary);
  return file.seekg(-1, std::ios::end) && file.get() != '\n';
}

}  // namespace

RecordFile::RecordFile(std::string name, std::filesystem::path path, Start start)
    : name_(std::move(name)), path_(std::move(path)) {
  const bool torn = start == Start::after_existing && ends_within_a_line(path_);
  const int truncates = start == Start::from_scratch ? O_TRUNC : 0;
  file_ = FileDescriptor(::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND | truncates, 0666));
  if (!file_) fail(ErrorCode::io, "{}: {}; use a writable path", name_, std::strerror(errno));
  if (torn) append("\n");
}

void RecordFile::append(std::string_view record) {
  if (!write_held() && held_bytes_ + record.size() > max_held_bytes) {
    ++lost_;
    return;
  }
  held_.emplace_back(record);
  held_bytes_ += record.size();
  if (write_held() || std::exchange(warned_, true)) return;
  print_stderr(
      fmt::format("ranvier: warning: {}: {}; up to {} MiB are held in memory and written once there is space; the "
                  "run continues\n",
                  name_, std::strerror(reason_), max_held_bytes >> 20));
}

void RecordFile::finish(const AtomicFile::Retry& retry) {
  while (!write_held()) {
    if (reason_ == EPIPE || !retry || !retry(path_, reason_)) return;  // the pipe has no reader
  }
}

bool RecordFile::write_held() {
  while (!held_.empty()) {
    const std::string& record = held_.front();
    const std::size_t written = write_what_fits(file_.get(), record);
    if (written < record.size()) {
      reason_ = errno;
      take_back(written);
      return false;
    }
    held_bytes_ -= record.size();
    held_.pop_front();
  }
  return true;
}

/// Removes the written start of a record from a regular file, where it would confuse readers. For a pipe, the part
/// already sent is not sent again.
void RecordFile::take_back(std::size_t written) {
  struct stat status{};
  if (written == 0 || (::fstat(file_.get(), &status) == 0 && S_ISREG(status.st_mode) &&
                       ::ftruncate(file_.get(), status.st_size - static_cast<off_t>(written)) == 0))
    return;
  held_.front().erase(0, written);
  held_bytes_ -= written;
}

std::string RecordFile::loss() const {
  const std::size_t missing = lost_ + held_.size();
  if (missing == 0) return {};
  return fmt::format("{} record{} of {} {} not written: {}", missing, missing > 1 ? "s" : "", name_,
                     missing > 1 ? "were" : "was", std::strerror(reason_));
}

}  // namespace ranvier::runtime

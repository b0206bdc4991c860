#include "runtime/log_file.hpp"

#include "runtime/error.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

namespace ranvier::runtime {
namespace {

/// Bytes that the system took; fewer than asked for with errno set.
std::size_t write_what_fits(int file, std::string_view text) noexcept {
  std::size_t written = 0;
  while (written < text.size()) {
    const ssize_t count = ::write(file, text.data() + written, text.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    written += static_cast<std::size_t>(count);
  }
  return written;
}

std::size_t lines_in(std::string_view text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

/// Whoever was killed while writing may have left half a line.
bool ends_within_a_line(const std::string& path) {
  std::error_code failed;
  if (!std::filesystem::is_regular_file(path, failed)) return false;
  std::ifstream file(path, std::ios::binary);
  return file.seekg(-1, std::ios::end) && file.get() != '\n';
}

ssize_t write_through(void* log, const char* data, std::size_t bytes) {
  static_cast<LogFile*>(log)->write({data, bytes});
  return static_cast<ssize_t>(bytes);
}

}  // namespace

LogFile::LogFile(std::string name, const std::string& path, Start start) : name_(std::move(name)), owns_(true) {
  torn_ = start == Start::after && ends_within_a_line(path);
  file_ =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND | (start == Start::anew ? O_TRUNC : 0), 0666);
  if (file_ < 0) fail(ErrorCode::io, "{}: {}: choose a path that can be written", name_, std::strerror(errno));
}

LogFile::LogFile(std::string name, int descriptor) : name_(std::move(name)), file_(descriptor), owns_(false) {}

LogFile::~LogFile() {
  if (owns_) ::close(file_);
}

void LogFile::write(std::string_view text) {
  if (text.empty()) return;
  if (torn_) {
    if (write_what_fits(file_, "\n") == 0) return lose(text, 0, errno);
    torn_ = false;
  }
  const std::size_t written = write_what_fits(file_, text);
  if (written < text.size()) lose(text, written, errno);
}

void LogFile::lose(std::string_view text, std::size_t written, int error) {
  const std::string_view rest = text.substr(written);
  lost_lines_ += std::max<std::size_t>(1, lines_in(rest));
  const std::size_t whole = text.substr(0, written).rfind('\n') + 1;  // npos + 1 is 0
  if (written > whole) {
    // Half a line would spoil the file for whoever reads it line by line. What others write, too, is not cut.
    struct stat status{};
    const bool ours = owns_ && ::fstat(file_, &status) == 0 && S_ISREG(status.st_mode);
    const auto torn_bytes = static_cast<off_t>(written - whole);
    torn_ = !ours || ::ftruncate(file_, status.st_size - torn_bytes) != 0;
  }
  if (std::exchange(reason_, error) != 0) return;
  say_on_stderr(fmt::format("ranvier: warning: {}: {}: lines are lost from here on; the run goes on\n", name_,
                            std::strerror(error)));
}

std::string LogFile::loss() const {
  if (lost_lines_ == 0) return {};
  return fmt::format("{} line{} of {} {} not written: {}", lost_lines_, lost_lines_ > 1 ? "s" : "", name_,
                     lost_lines_ > 1 ? "were" : "was", std::strerror(reason_));
}

StandardOutput::StandardOutput() : log_("the standard output", STDOUT_FILENO), before_(stdout) {
  for (const int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_IGN);
  std::fflush(before_);
  through_ =
      ::fopencookie(&log_, "w", {.read = nullptr, .write = write_through, .seek = nullptr, .close = nullptr});
  if (through_ == nullptr) fail(ErrorCode::io, "the standard output cannot be opened: {}", std::strerror(errno));
  if (::isatty(STDOUT_FILENO) != 0) std::setvbuf(through_, nullptr, _IOLBF, BUFSIZ);
  stdout = through_;
}

StandardOutput::~StandardOutput() {
  stdout = before_;
  std::fclose(through_);
}

void say_on_stderr(std::string_view text) noexcept { static_cast<void>(write_what_fits(STDERR_FILENO, text)); }

}  // namespace ranvier::runtime

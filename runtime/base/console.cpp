#include "runtime/base/console.hpp"

#include "runtime/base/error.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

namespace ranvier::runtime {

StandardOutput::StandardOutput() : before_(stdout) {
  for (const int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_IGN);
  std::fflush(before_);
  through_ = ::fopencookie(this, "w", {.read = nullptr, .write = write, .seek = nullptr, .close = nullptr});
  if (through_ == nullptr) fail(ErrorCode::io, "cannot open standard output: {}", std::strerror(errno));
  if (::isatty(STDOUT_FILENO) != 0) std::setvbuf(through_, nullptr, _IOLBF, BUFSIZ);
  stdout = through_;
}

StandardOutput::~StandardOutput() {
  stdout = before_;
  std::fclose(through_);
}

ssize_t StandardOutput::write(void* self, const char* data, std::size_t bytes) {
  auto& output = *static_cast<StandardOutput*>(self);
  const std::string_view text(data, bytes);
  if (const std::size_t written = write_what_fits(STDOUT_FILENO, text); written < bytes) {
    const int error = errno;
    const auto lines = static_cast<std::size_t>(std::count(data + written, data + bytes, '\n'));
    output.lost_lines_ += std::max<std::size_t>(1, lines);
    if (std::exchange(output.reason_, error) == 0)
      print_stderr(fmt::format(
          "ranvier: warning: cannot write standard output: {}; further lines are lost, the run continues\n",
          std::strerror(error)));
  }
  return static_cast<ssize_t>(bytes);
}

std::string StandardOutput::loss() const {
  if (lost_lines_ == 0) return {};
  return fmt::format("{} line{} of the standard output {} not written: {}", lost_lines_, lost_lines_ > 1 ? "s" : "",
                     lost_lines_ > 1 ? "were" : "was", std::strerror(reason_));
}

void print_stderr(std::string_view text) noexcept { static_cast<void>(write_what_fits(STDERR_FILENO, text)); }

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

}  // namespace ranvier::runtime

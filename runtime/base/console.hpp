// Standard output and error; a failed print never ends a run. Callable from any thread unless stated otherwise.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

namespace ranvier::runtime {

/// Keeps prints to stdout from failing while it exists. Lines that the system refuses (full disk, closed pipe) are
/// counted and reported once on stderr. The process ignores SIGPIPE and SIGXFSZ from then on, so that writes fail
/// instead. One instance at a time; create and destroy it while no other thread prints.
class StandardOutput {
 public:
  StandardOutput();
  ~StandardOutput();
  StandardOutput(const StandardOutput&) = delete;
  StandardOutput& operator=(const StandardOutput&) = delete;

  /// "12 lines of the standard output were not written: No space left on device"; empty if nothing was lost. Call
  /// std::fflush(stdout) first.
  [[nodiscard]] std::string loss() const;

 private:
  static ssize_t write(void* self, const char* data, std::size_t bytes);

  std::FILE* before_;
  std::FILE* through_;
  std::size_t lost_lines_ = 0;
  int reason_ = 0;  // errno of the first loss
};

/// Writes to stderr at once and completely, even if nothing reads it.
void print_stderr(std::string_view text) noexcept;

/// Number of bytes written to the descriptor `file`; fewer than text.size() if the system refused, with errno set.
std::size_t write_what_fits(int file, std::string_view text) noexcept;

}  // namespace ranvier::runtime

// What a run tells about itself, line by line: worth having, never worth losing the run for. What the system does not
// take (a full disk, a pipe that nobody reads any more) is counted, warned about once on stderr, and tried again with
// the next line. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

namespace ranvier::runtime {

class LogFile {
 public:
  enum class Start {
    anew,  ///< what was there is gone
    after  ///< what is there stays
  };

  /// Throws ErrorCode::io if the file cannot be opened. `name` is how messages call it: "--metrics run.jsonl".
  LogFile(std::string name, const std::string& path, Start start);
  /// Writes to a descriptor that stays the caller's.
  LogFile(std::string name, int descriptor);
  ~LogFile();
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  /// Any text; lines may come in pieces. A line of a file that was not written whole is taken back.
  void write(std::string_view text);

  /// Lines that were not written whole, so far.
  [[nodiscard]] std::size_t lost_lines() const noexcept { return lost_lines_; }
  /// "12 lines of --metrics run.jsonl were not written: No space left on device"; empty if nothing was lost.
  [[nodiscard]] std::string loss() const;

 private:
  void lose(std::string_view text, std::size_t written, int error);

  std::string name_;
  int file_ = -1;
  bool owns_;
  bool torn_ = false;  // the last line in the file is not whole
  std::size_t lost_lines_ = 0;
  int reason_ = 0;
};

/// While it lives, whatever is printed to stdout goes through a LogFile, so that no print fails. From then on the
/// process ignores SIGPIPE and SIGXFSZ: writes fail instead. One at a time; made and destroyed while nobody prints.
class StandardOutput {
 public:
  StandardOutput();
  ~StandardOutput();
  StandardOutput(const StandardOutput&) = delete;
  StandardOutput& operator=(const StandardOutput&) = delete;

  /// After a flush.
  [[nodiscard]] std::string loss() const { return log_.loss(); }

 private:
  LogFile log_;
  std::FILE* before_;
  std::FILE* through_;
};

/// Writes to stderr at once, whole, and whether or not anybody takes it. Any thread.
void say_on_stderr(std::string_view text) noexcept;

}  // namespace ranvier::runtime

// What goes wrong is an Error: it carries the library's own code, so that callers and exit paths need not
// parse text, and a message that says what was wrong, where, and what to do about it.
//
//   fail(ErrorCode::usage, "--batch-size {} does not divide by --g-data {}: choose a multiple", batch, data);
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace ranvier {

enum class ErrorCode {
  usage,      ///< a flag or a config key; nothing was started
  data,       ///< the content of a file is not what it must be
  io,         ///< the operating system refused to open, read or write
  memory,     ///< a budget is too small for what was planned
  device,     ///< a device operation failed
  transport,  ///< a message could not be delivered, or a peer is silent
  numeric,    ///< values that make no sense to go on with
  internal,   ///< a broken precondition inside the program
};

[[nodiscard]] const char* to_string(ErrorCode code) noexcept;

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}

  [[nodiscard]] ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

template <typename... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

/// Throws ErrorCode::internal with `format` unless `condition` holds.
template <typename... Args>
void expect(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) fail(ErrorCode::internal, format, std::forward<Args>(args)...);
}

}  // namespace ranvier

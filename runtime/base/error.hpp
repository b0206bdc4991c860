// Error: exception with a code, so that callers need not parse text. Its message names the problem, the place and the
// remedy; a setting is named by its field in backquotes, which programs turn into a flag. Callable from any thread.
//
//   fail(ErrorCode::usage, "`batch_size` {} is not divisible by `g_data` {}; use a multiple", batch, data);
#pragma once

#include <fmt/core.h>

#include <exception>
#include <stdexcept>
#include <string>
#include <utility>

namespace ranvier {

enum class ErrorCode {
  usage,      ///< wrong flag or config key; nothing was started
  data,       ///< invalid file content
  io,         ///< the operating system refused to open, read or write
  memory,     ///< too little memory, or a budget below the plan
  device,     ///< failed device operation
  transport,  ///< undeliverable message, or silent peer
  numeric,    ///< numerically invalid values: the run cannot continue
  internal,   ///< broken precondition inside the program
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

// Exit statuses, the same in all programs, for schedulers and scripts that restart a job. Numbers follow sysexits.h if
// it has a matching meaning.

/// Stopped by a signal or a limit before the end; another run can resume it.
inline constexpr int stopped_exit_code = 75;

/// 64 usage, 65 data, 70 internal, 71 memory, 72 device, 73 numeric, 74 io, 76 transport.
[[nodiscard]] int exit_code(ErrorCode code) noexcept;

/// Code of an Error; memory for std::bad_alloc; internal for all other exceptions.
[[nodiscard]] ErrorCode error_code(const std::exception& error) noexcept;

}  // namespace ranvier

// Exit statuses, the same in all programs, for schedulers and scripts that restart a job. Numbers follow sysexits.h if
// it has a matching meaning. Callable from any thread.
#pragma once

#include "runtime/base/error.hpp"

#include <exception>

namespace ranvier {

/// Stopped by a signal or a limit before the end; another run can resume it.
inline constexpr int stopped_exit_code = 75;

/// 64 usage, 65 data, 70 internal, 71 memory, 72 device, 73 numeric, 74 io, 76 transport.
[[nodiscard]] int exit_code(ErrorCode code) noexcept;

/// Code of an Error; memory for std::bad_alloc; internal for all other exceptions.
[[nodiscard]] ErrorCode error_code(const std::exception& error) noexcept;

}  // namespace ranvier

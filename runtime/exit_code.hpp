// What a program's exit status says to whoever started it, a scheduler or a loop that starts it again: the same in all
// programs. Numbers are sysexits.h's where it has a meaning for them. Any thread.
#pragma once

#include "runtime/error.hpp"

#include <exception>

namespace ranvier {

/// Stopped before all was done, by a signal or a limit, to be gone on with by another run.
inline constexpr int stopped_exit_code = 75;

/// 64 usage, 65 data, 70 internal, 71 memory, 72 device, 73 numeric, 74 io, 76 transport.
[[nodiscard]] int exit_code(ErrorCode code) noexcept;

/// What kind of failure an exception is: of an Error its own; std::bad_alloc is memory, and all others are internal.
[[nodiscard]] ErrorCode error_code(const std::exception& error) noexcept;

}  // namespace ranvier

// Prints the error that ends a program. Callable from any thread.
#pragma once

#include "runtime/base/console.hpp"

#include <fmt/format.h>

#include <string_view>

namespace ranvier::apps {

/// Prints "ranvier-train: error: …" on stderr; written when this returns.
inline void print_error(std::string_view program, std::string_view what) {
  runtime::print_stderr(fmt::format("{}: error: {}\n", program, what));
}

}  // namespace ranvier::apps

// Prints the error that ends a program. Callable from any thread.
#pragma once

#include "apps/program/flag_names.hpp"
#include "runtime/base/console.hpp"

#include <fmt/format.h>

#include <string_view>

namespace ranvier::apps {

/// Prints "ranvier-train: error: …" on stderr, with flags (flag_names.hpp); written when this returns.
inline void print_error(std::string_view program, std::string_view what) {
  runtime::print_stderr(fmt::format("{}: error: {}\n", program, with_flags(what)));
}

}  // namespace ranvier::apps

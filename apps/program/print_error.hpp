// Main function of programs without ranks; prints the error that ends a program. Callable from any thread.
#pragma once

#include "apps/program/flag_names.hpp"
#include "apps/program/manual.hpp"
#include "runtime/base/console.hpp"
#include "runtime/base/error.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

namespace ranvier::apps {

/// Prints "ranvier-train: error: …" on stderr, with flags (flag_names.hpp); written when this returns.
inline void print_error(std::string_view program, std::string_view what) {
  runtime::print_stderr(fmt::format("{}: error: {}\n", program, with_flags(what)));
}

/// Prints the information that the options request, or else calls `run` with them. Prints an error. Returns the exit
/// status.
template <typename Options, typename Run>
[[nodiscard]] int run_program(const char* program, int argc, char** argv, Options (*parse)(int, const char* const*),
                              Manual (*manual)(), const Run& run) {
  try {
    Options options = parse(argc, argv);
    if (!options.info.any()) return run(options);
    fmt::print("{}\n", answer(options.info, manual()));
    return EXIT_SUCCESS;
  } catch (const std::exception& error) {
    print_error(program, error.what());
    return exit_code(error_code(error));
  }
}

}  // namespace ranvier::apps

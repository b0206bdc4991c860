// Turns settings that lower folders name as fields (runtime/base/error.hpp) into flags. Callable from any thread.
//
//   with_flags("`batch_size` 7 is not a multiple of `g_data` 2") == "--batch-size 7 is not a multiple of --g-data 2"
#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace ranvier::apps {

/// Replaces each lower-case identifier in backquotes by its flag. Other text stays, such as `two words`.
[[nodiscard]] std::string with_flags(std::string_view text);

/// Text of an exception with flags. Programs print exceptions only through this and print_error().
[[nodiscard]] inline std::string message_of(const std::exception& error) { return with_flags(error.what()); }

}  // namespace ranvier::apps

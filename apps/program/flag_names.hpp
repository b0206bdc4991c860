// Turns settings that lower folders name as fields (runtime/base/error.hpp) into flags. Callable from any thread.
//
//   with_flags("`batch_size` 7 is not a multiple of `g_data` 2") == "--batch-size 7 is not a multiple of --g-data 2"
#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>
#include <string>
#include <string_view>

namespace ranvier::apps {

/// Replaces each lower-case identifier in backquotes by its flag. Other text stays, such as `two words`.
[[nodiscard]] inline std::string with_flags(std::string_view text) {
  constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyz", more = "0123456789_";
  std::string shown(text);
  for (std::size_t begin = shown.find('`'); begin != std::string::npos; begin = shown.find('`', begin + 1)) {
    std::size_t end = begin + 1;
    const auto is_in = [&](std::string_view set) { return set.find(shown[end]) != std::string_view::npos; };
    if (end == shown.size() || !is_in(letters)) continue;
    while (end < shown.size() && (is_in(letters) || is_in(more))) ++end;
    if (end == shown.size() || shown[end] != '`') continue;
    std::replace(shown.begin() + static_cast<std::ptrdiff_t>(begin),
                 shown.begin() + static_cast<std::ptrdiff_t>(end), '_', '-');
    shown.replace(end, 1, "").replace(begin, 1, "--");
  }
  return shown;
}

/// Text of an exception with flags. Programs print exceptions only through this and print_error().
[[nodiscard]] inline std::string message_of(const std::exception& error) { return with_flags(error.what()); }

}  // namespace ranvier::apps

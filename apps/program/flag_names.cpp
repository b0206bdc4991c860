#include "apps/program/flag_names.hpp"

#include <algorithm>

namespace ranvier::apps {

std::string with_flags(std::string_view text) {
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

}  // namespace ranvier::apps

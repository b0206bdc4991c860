// Escapes text. Pure functions, callable from any thread.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace ranvier::apps {

/// Replaces each of these characters by its text.
[[nodiscard]] inline std::string escaped(std::string_view text,
                                         std::initializer_list<std::pair<char, std::string_view>> escapes) {
  std::string out;
  for (const char& c : text) {
    const auto* const found = std::ranges::find(escapes, c, &std::pair<char, std::string_view>::first);
    out += found == escapes.end() ? std::string_view(&c, 1) : found->second;
  }
  return out;
}

/// Escapes text for HTML and SVG, between tags or in a quoted attribute. Removes control characters except tabs and
/// newlines.
[[nodiscard]] inline std::string markup_text(std::string_view text) {
  std::string out = escaped(text, {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}});
  std::erase_if(out, [](char c) { return static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t'; });
  return out;
}

}  // namespace ranvier::apps

// Escapes text. Pure functions, callable from any thread.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace ranvier::apps {

/// Replaces each of these characters by its text.
[[nodiscard]] std::string escaped(std::string_view text,
                                  std::initializer_list<std::pair<char, std::string_view>> escapes);

/// Escapes text for HTML and SVG, between tags or in a quoted attribute. Removes control characters except tabs and
/// newlines.
[[nodiscard]] std::string markup_text(std::string_view text);

}  // namespace ranvier::apps

// Words in a program's output, a message or a file.
#pragma once

#include <doctest/doctest.h>

#include <initializer_list>
#include <string>
#include <string_view>

namespace ranvier::tests {

[[nodiscard]] inline bool has(std::string_view text, std::string_view words) {
  return text.find(words) != std::string_view::npos;
}

/// Checks that the text contains each of these words; a failure prints them and the text.
template <typename Words = std::initializer_list<std::string_view>>
void check_has(std::string_view text, const Words& all) {
  for (const std::string_view words : all)
    CHECK_MESSAGE(has(text, words), "'" << std::string(words) << "' is not in: " << std::string(text));
}

/// The opposite: none of them.
template <typename Words = std::initializer_list<std::string_view>>
void check_lacks(std::string_view text, const Words& all) {
  for (const std::string_view words : all)
    CHECK_MESSAGE(!has(text, words), "'" << std::string(words) << "' is in: " << std::string(text));
}

}  // namespace ranvier::tests

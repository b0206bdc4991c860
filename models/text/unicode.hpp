// What Unicode says of characters, and its normal forms (UAX #15). Pure; any thread.
#pragma once

#include "models/text/utf8.hpp"

#include <string>
#include <string_view>

namespace ranvier::models {

enum class NormalForm { composed, decomposed, compatibly_composed, compatibly_decomposed };

/// Text, which is UTF-8, in a normal form: NFC, NFD, NFKC, NFKD.
[[nodiscard]] std::string normalized(std::string_view text, NormalForm form);

/// In small letters, appended; of most characters that is one, of U+0130 two.
void append_lowercase(char32_t character, std::string& to);

/// White_Space.
[[nodiscard]] bool is_white_space(char32_t character);
/// Of a category M…
[[nodiscard]] bool is_mark(char32_t character);
/// Of category Mn.
[[nodiscard]] bool is_nonspacing_mark(char32_t character);
/// Of a category P…
[[nodiscard]] bool is_punctuation(char32_t character);
/// Of category Cc, Cf or Co.
[[nodiscard]] bool is_control(char32_t character);
/// A letter, mark, digit, joiner or connecting punctuation, as regular expressions mean by \w (UTS #18).
[[nodiscard]] bool is_of_word(char32_t character);

/// Calls f(character, its bytes) for all characters of a text, which is UTF-8.
template <typename F>
void for_each_character(std::string_view text, F&& f) {
  for (std::size_t at = 0; at < text.size();) {
    const auto first = static_cast<unsigned char>(text[at]);
    const std::size_t bytes = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    f(character_at(text, at), text.substr(at, bytes));
    at += bytes;
  }
}

}  // namespace ranvier::models

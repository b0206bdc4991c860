// UTF-8, Unicode properties of characters, and normal forms (UAX #15). Pure; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ranvier::models {

// UTF-8 characters in bytes that may not be UTF-8 (RFC 3629: shortest form, no surrogates, at most U+10FFFF).

/// Bytes of the character that starts at `at`; 0 if none does.
[[nodiscard]] std::size_t character_bytes(std::string_view text, std::size_t at);

/// Character that starts at `at`; character_bytes() must not be 0 there.
[[nodiscard]] char32_t character_at(std::string_view text, std::size_t at);

/// First byte at or after `from` that belongs to no character; the text's size if there is none.
[[nodiscard]] std::size_t first_stray_byte(std::string_view text, std::size_t from);

/// Bytes of an incomplete character at the end of the text: 0 to 3.
[[nodiscard]] std::size_t unfinished_bytes(std::string_view text);

void append_utf8(char32_t character, std::string& to);

/// Character that stands for a space in some tokenizers' tokens: U+2581.
inline constexpr std::string_view metaspace = "\u2581";

enum class NormalForm { composed, decomposed, compatibly_composed, compatibly_decomposed };

/// Normalizes UTF-8 text: NFC, NFD, NFKC or NFKD.
[[nodiscard]] std::string normalized(std::string_view text, NormalForm form);

/// Appends the lower case: one character, or two for U+0130.
void append_lowercase(char32_t character, std::string& to);

/// Property White_Space.
[[nodiscard]] bool is_white_space(char32_t character);
/// Category M…
[[nodiscard]] bool is_mark(char32_t character);
/// Category Mn.
[[nodiscard]] bool is_nonspacing_mark(char32_t character);
/// Category P…
[[nodiscard]] bool is_punctuation(char32_t character);
/// Category Cc, Cf or Co.
[[nodiscard]] bool is_control(char32_t character);
/// Letter, mark, digit, joiner or connecting punctuation: \w of regular expressions (UTS #18).
[[nodiscard]] bool is_of_word(char32_t character);

/// Calls f(character, its bytes) for each character of a UTF-8 text.
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

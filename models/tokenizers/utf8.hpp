// Finds UTF-8 characters in bytes that may not be UTF-8 (RFC 3629: shortest form, no surrogates, at most U+10FFFF).
// Pure; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ranvier::models {

/// Bytes of the character that starts at `at`; 0 if none does.
[[nodiscard]] std::size_t character_bytes(std::string_view text, std::size_t at);

/// Character that starts at `at`; character_bytes() must not be 0 there.
[[nodiscard]] char32_t character_at(std::string_view text, std::size_t at);

/// First byte at or after `from` that belongs to no character; the text's size if there is none.
[[nodiscard]] std::size_t first_stray_byte(std::string_view text, std::size_t from);

/// Bytes of an incomplete character at the end of the text: 0 to 3.
[[nodiscard]] std::size_t unfinished_bytes(std::string_view text);

void append_utf8(char32_t character, std::string& to);

}  // namespace ranvier::models

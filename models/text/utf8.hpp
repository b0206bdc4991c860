// UTF-8 in text that may not be it: which bytes form characters (RFC 3629: shortest form, no surrogates, at most
// U+10FFFF). Pure; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ranvier::models {

/// Bytes of the character that begins at `at`, inside the text; 0 if none does.
[[nodiscard]] std::size_t character_bytes(std::string_view text, std::size_t at);

/// The character that begins at `at`; character_bytes() is not 0 there.
[[nodiscard]] char32_t character_at(std::string_view text, std::size_t at);

/// The first byte from `from` on that belongs to no character, where one begins or would; the text's size if there
/// is none.
[[nodiscard]] std::size_t first_stray_byte(std::string_view text, std::size_t from);

/// How many bytes at the end of the text are the beginning of a character whose rest may follow: 0 to 3.
[[nodiscard]] std::size_t unfinished_bytes(std::string_view text);

void append_utf8(char32_t character, std::string& to);

}  // namespace ranvier::models

#include "models/tokenizers/unicode.hpp"

#include "runtime/base/error.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

namespace ranvier::models {
namespace {

utf8proc_category_t category_of(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

/// Whether the character is common, unchanged by a normal form, and never composed with the one before it.
bool is_stable(char32_t c, NormalForm form) {
  const bool decomposes = form == NormalForm::decomposed || form == NormalForm::compatibly_decomposed;
  if (c >= 0x4e00 && c <= 0x9fff) return true;
  if (decomposes) return c < 0xa0 || (form == NormalForm::decomposed && c < 0xc0);
  if (c >= 0xac00 && c <= 0xd7a3) return true;
  if (form == NormalForm::compatibly_composed) return c < 0xa0;
  return c < 0x300 || (c >= 0x3041 && c <= 0x3096) || (c >= 0x30a1 && c <= 0x30fa) ||
         (c >= 0x3001 && c <= 0x3029) || (c >= 0x400 && c <= 0x482) || (c >= 0x621 && c <= 0x64a) ||
         (c >= 0x2010 && c <= 0x2027);
}

void append_normalized(std::string_view text, NormalForm form, std::vector<utf8proc_int32_t>& characters,
                       std::string& to) {
  const bool composes = form == NormalForm::composed || form == NormalForm::compatibly_composed;
  const bool compatibly = form == NormalForm::compatibly_composed || form == NormalForm::compatibly_decomposed;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | (compatibly ? UTF8PROC_COMPAT : 0) |
                                                      (composes ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE));
  const auto* const bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  const auto size = static_cast<utf8proc_ssize_t>(text.size());
  const auto decompose = [&] {
    return utf8proc_decompose(bytes, size, characters.data(), static_cast<utf8proc_ssize_t>(characters.size()),
                              options);
  };
  if (characters.size() < text.size()) characters.resize(text.size());
  utf8proc_ssize_t count = decompose();
  if (count > static_cast<utf8proc_ssize_t>(characters.size())) {
    characters.resize(static_cast<std::size_t>(count));
    count = decompose();
  }
  expect(count >= 0, "cannot normalize text: {}", utf8proc_errmsg(count));
  count = utf8proc_normalize_utf32(characters.data(), count, options);
  expect(count >= 0, "cannot normalize text: {}", utf8proc_errmsg(count));
  for (utf8proc_ssize_t i = 0; i < count; ++i)
    append_utf8(static_cast<char32_t>(characters[static_cast<std::size_t>(i)]), to);
}

std::uint8_t byte_at(std::string_view text, std::size_t at) { return static_cast<std::uint8_t>(text[at]); }

bool continues(std::string_view text, std::size_t at) { return (byte_at(text, at) & 0xc0) == 0x80; }

}  // namespace

std::string normalized(std::string_view text, NormalForm form) {
  // Copies stable characters, except the last one before an unstable character: the two may be composed.
  std::string to;
  to.reserve(text.size());
  std::vector<utf8proc_int32_t> characters;
  std::size_t copied = 0, last = 0, at = 0;
  while (at < text.size()) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      last = at++;
      continue;
    }
    const std::size_t bytes = character_bytes(text, at);
    if (is_stable(character_at(text, at), form)) {
      last = at;
      at += bytes;
      continue;
    }
    std::size_t end = at + bytes;
    while (end < text.size() && !is_stable(character_at(text, end), form)) end += character_bytes(text, end);
    const std::size_t begin = std::max(copied, last);
    to.append(text, copied, begin - copied);
    append_normalized(text.substr(begin, end - begin), form, characters, to);
    copied = last = at = end;
  }
  to.append(text, copied);
  return to;
}

void append_lowercase(char32_t c, std::string& to) {
  if (c == 0x130) {
    to += "i\u0307";
  } else {
    append_utf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), to);
  }
}

bool is_white_space(char32_t c) {
  return c == ' ' || (c >= '\t' && c <= '\r') || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_mark(char32_t c) {
  const auto category = c < 0x300 ? UTF8PROC_CATEGORY_CN : category_of(c);
  return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
}

bool is_nonspacing_mark(char32_t c) { return c >= 0x300 && category_of(c) == UTF8PROC_CATEGORY_MN; }

bool is_punctuation(char32_t c) {
  const auto category = category_of(c);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

bool is_control(char32_t c) {
  const auto category = category_of(c);
  return category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF || category == UTF8PROC_CATEGORY_CO;
}

bool is_of_word(char32_t c) {
  const auto category = category_of(c);
  return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_ND) ||
         category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_PC || c == 0x200c || c == 0x200d ||
         (c >= 0x24b6 && c <= 0x24e9);
}

std::size_t character_bytes(std::string_view text, std::size_t at) {
  const std::size_t left = text.size() - at;
  const std::uint8_t first = byte_at(text, at);
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  if (left < 2 || !continues(text, at + 1)) return 0;
  if (first < 0xe0) return 2;
  const std::uint8_t second = byte_at(text, at + 1);
  if (left < 3 || !continues(text, at + 2)) return 0;
  if (first < 0xf0) return (first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) ? 0 : 3;
  if (left < 4 || !continues(text, at + 3)) return 0;
  return (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f) ? 0 : 4;
}

char32_t character_at(std::string_view text, std::size_t at) {
  const std::uint8_t first = byte_at(text, at);
  if (first < 0x80) return first;
  const std::size_t bytes = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  char32_t character = first & (0x7fu >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) character = character << 6 | (byte_at(text, at + i) & 0x3f);
  return character;
}

std::size_t first_stray_byte(std::string_view text, std::size_t from) {
  for (std::size_t at = from; at < text.size();) {
    std::uint64_t eight = 0;
    if (text.size() - at >= sizeof eight) {
      std::memcpy(&eight, text.data() + at, sizeof eight);
      if ((eight & 0x8080808080808080u) == 0) {
        at += sizeof eight;
        continue;
      }
    }
    const std::size_t bytes = character_bytes(text, at);
    if (bytes == 0) return at;
    at += bytes;
  }
  return text.size();
}

std::size_t unfinished_bytes(std::string_view text) {
  for (std::size_t count = 1; count < 4 && count <= text.size(); ++count) {
    if (continues(text, text.size() - count)) continue;
    // It begins a character if some bytes complete it: whether the second may follow the first is all that can fail.
    std::string whole(text.substr(text.size() - count));
    const std::uint8_t first = byte_at(whole, 0);
    const std::size_t bytes = first < 0xc2 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 1;
    if (bytes <= count) return 0;
    if (count == 1) return 1;
    whole.resize(bytes, '\x80');
    return character_bytes(whole, 0) == 0 ? 0 : count;
  }
  return 0;
}

void append_utf8(char32_t c, std::string& to) {
  std::array<utf8proc_uint8_t, 4> bytes{};
  const auto count = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes.data());
  to.append(reinterpret_cast<const char*>(bytes.data()), static_cast<std::size_t>(count));
}

}  // namespace ranvier::models

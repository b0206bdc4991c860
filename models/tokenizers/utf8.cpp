#include "models/tokenizers/utf8.hpp"

#include <cstdint>
#include <cstring>

namespace ranvier::models {
namespace {

std::uint8_t byte_at(std::string_view text, std::size_t at) { return static_cast<std::uint8_t>(text[at]); }

bool continues(std::string_view text, std::size_t at) { return (byte_at(text, at) & 0xc0) == 0x80; }

}  // namespace

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
  const auto add = [&to](char32_t bits) { to += static_cast<char>(bits); };
  if (c < 0x80) return add(c);
  if (c < 0x800) {
    add(0xc0 | c >> 6);
  } else if (c < 0x10000) {
    add(0xe0 | c >> 12);
    add(0x80 | (c >> 6 & 0x3f));
  } else {
    add(0xf0 | c >> 18);
    add(0x80 | (c >> 12 & 0x3f));
    add(0x80 | (c >> 6 & 0x3f));
  }
  add(0x80 | (c & 0x3f));
}

}  // namespace ranvier::models

#include "models/tokenizers/token_spelling.hpp"

#include "models/tokenizers/unicode.hpp"

#include <array>
#include <charconv>

namespace ranvier::models {
namespace {

/// By character below U+0144; negative: it stands for no byte.
std::array<std::int16_t, 0x144> make_alphabet() {
  std::array<std::int16_t, 0x144> bytes{};
  bytes.fill(-1);
  std::size_t other = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printed = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    bytes[printed ? static_cast<std::size_t>(byte) : other++] = static_cast<std::int16_t>(byte);
  }
  return bytes;
}

}  // namespace

bool bytes_of_spelling(std::string_view spelling, std::string& to) {
  static const auto alphabet = make_alphabet();
  to.clear();
  for (std::size_t at = 0; at < spelling.size();) {
    const std::size_t length = character_bytes(spelling, at);
    const char32_t c = length == 0 ? 0 : character_at(spelling, at);
    if (c >= alphabet.size() || alphabet[c] < 0) {
      to.clear();
      return false;
    }
    to += static_cast<char>(alphabet[c]);
    at += length;
  }
  return true;
}

int spelled_byte(std::string_view spelling) {
  if (spelling.size() != 6 || !spelling.starts_with("<0x") || spelling[5] != '>') return -1;
  unsigned byte = 0;
  const auto [end, error] = std::from_chars(spelling.data() + 3, spelling.data() + 5, byte, 16);
  return error == std::errc{} && end == spelling.data() + 5 ? static_cast<int>(byte) : -1;
}

TokenSpelling::TokenSpelling(const std::vector<std::string>& tokens, const std::vector<bool>& silent,
                             const std::vector<Step>& steps, char stripped, int strips)
    : silent_(silent), stripped_(stripped), strips_(strips) {
  const auto spell = [&](bool is_first, std::string& all, std::vector<std::size_t>& begins) {
    begins.reserve(tokens.size() + 1);
    for (const std::string& token : tokens) {
      begins.push_back(all.size());
      std::string text = token;
      for (const Step& step : steps) step(text, is_first);
      all += text;
    }
    begins.push_back(all.size());
  };
  spell(false, later_, later_begins_);
  spell(true, first_, first_begins_);
}

void TokenSpelling::append(std::int32_t token, Position& position, std::string& to) const {
  const auto i = static_cast<std::size_t>(token);
  if (silent_[i]) return;
  const auto& begins = position.is_first ? first_begins_ : later_begins_;
  std::string_view text =
      std::string_view(position.is_first ? first_ : later_).substr(begins[i], begins[i + 1] - begins[i]);
  position.is_first = false;
  for (; position.strips > 0 && text.starts_with(stripped_); --position.strips) text.remove_prefix(1);
  if (!text.empty()) position.strips = 0;
  to += text;
}

}  // namespace ranvier::models

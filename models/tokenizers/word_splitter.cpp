#include "models/tokenizers/word_splitter.hpp"

#include "models/tokenizers/unicode.hpp"
#include "runtime/base/error.hpp"

#include <algorithm>

namespace ranvier::models {
namespace {

/// GPT-2's alternatives without backtracking: next() handles \s+(?!\S) for words of blanks.
const UnicodePattern& word_pattern() {
  static const UnicodePattern pattern(R"('(?:[sdmt]|ll|ve|re)| ?+\p{L}++| ?+\p{N}++| ?+[^\s\p{L}\p{N}]++|\s++)",
                                      "GPT-2");
  return pattern;
}

constexpr char stray_byte = '\x01';  // a character of one byte that is neither blank, letter nor number

bool is_ascii_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/// Start of the character that ends before `end`.
std::size_t last_character(std::string_view text, std::size_t end) {
  for (std::size_t bytes = 1; bytes <= std::min<std::size_t>(4, end); ++bytes)
    if (character_bytes(text.substr(0, end), end - bytes) == bytes) return end - bytes;
  return end - 1;
}

bool is_cut(std::string_view text, std::size_t at, TextCuts cuts) {
  const auto [places, apart] = cuts;
  if (places == SplitPoints::blanks ? !is_ascii_blank(text[at]) : text[at] != ' ') return false;
  const std::size_t before = last_character(text, at);
  if (character_bytes(text, before) > 0) {
    const char32_t last = character_at(text, before);
    constexpr char32_t written_space = 0x2581;  // metaspace
    if (is_white_space(last) || (places == SplitPoints::spaces && last == written_space)) return false;
  }
  return apart == nullptr || !apart->may_touch(text, at);
}

}  // namespace

WordSplitter::WordSplitter() : finder_(word_pattern()) {}

void WordSplitter::start(std::string_view text) {
  text_ = matched_ = text;
  at_ = 0;
  std::size_t stray = first_stray_byte(text, 0);
  if (stray == text.size()) return;
  valid_ = text;
  for (; stray < text.size(); stray = first_stray_byte(text, stray + 1)) valid_[stray] = stray_byte;
  matched_ = valid_;
}

std::string_view WordSplitter::next() {
  if (at_ == text_.size()) return {};
  UnicodePattern::Match match;
  expect(finder_.find(matched_, at_, match) && match.begin == at_, "no word starts at byte {} of {}", at_,
         text_.size());
  std::size_t end = match.end;
  // \s+(?!\S): the last of several blanks is left to the word that follows. Only words of blanks end with one.
  const auto byte = static_cast<unsigned char>(matched_[end - 1]);
  if (end < matched_.size() && (byte <= ' ' || byte >= 0x80)) {
    const std::size_t last = last_character(matched_, end);
    if (last > at_ && is_white_space(character_at(matched_, last))) end = last;
  }
  const std::string_view word = text_.substr(at_, end - at_);
  at_ = end;
  return word;
}

std::size_t last_cut(std::string_view text, std::size_t most, TextCuts cuts) {
  if (cuts.places == SplitPoints::nowhere) return 0;
  for (std::size_t cut = std::min(most, text.empty() ? 0 : text.size() - 1); cut > 0; --cut)
    if (is_cut(text, cut, cuts)) return cut;
  return 0;
}

std::size_t first_cut(std::string_view text, std::size_t least, TextCuts cuts) {
  if (cuts.places == SplitPoints::nowhere) return text.size();
  for (std::size_t cut = std::max<std::size_t>(least, 1); cut < text.size(); ++cut)
    if (is_cut(text, cut, cuts)) return cut;
  return text.size();
}

}  // namespace ranvier::models

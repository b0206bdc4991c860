#define PCRE2_CODE_UNIT_WIDTH 8
#include "models/tokenizers/word_splitter.hpp"

#include "models/tokenizers/unicode.hpp"
#include "runtime/base/error.hpp"

#include <pcre2.h>

#include <algorithm>

namespace ranvier::models {
namespace {

// PCRE2's own \s has U+180E, which has not been White_Space since Unicode 6.3.
#define BLANKS R"(\x09-\x0d\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})"
// GPT-2's alternatives without backtracking: next() handles \s+(?!\S) for the group of blanks.
constexpr const char* expression =
    R"('(?:[sdmt]|ll|ve|re)| ?+\p{L}++| ?+\p{N}++| ?+[^)" BLANKS R"(\p{L}\p{N}]++|([)" BLANKS R"(]++))";
#undef BLANKS

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

struct WordSplitter::Pattern {
  pcre2_code* code = nullptr;
  pcre2_match_data* match = nullptr;
  bool compiled_to_machine_code = false;

  ~Pattern() {
    pcre2_match_data_free(match);
    pcre2_code_free(code);
  }

  /// End of the word that starts at `at`, with all leading blanks.
  std::size_t end_of(std::string_view text, std::size_t at, bool& blanks) {
    const auto* const subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    const int groups = compiled_to_machine_code
                           ? pcre2_jit_match(code, subject, text.size(), at, PCRE2_NO_UTF_CHECK, match, nullptr)
                           : pcre2_match(code, subject, text.size(), at, PCRE2_NO_UTF_CHECK, match, nullptr);
    expect(groups > 0, "PCRE2 returned {} at the start of a word, byte {} of {}", groups, at, text.size());
    blanks = groups > 1;
    return pcre2_get_ovector_pointer(match)[1];
  }
};

WordSplitter::WordSplitter() : pattern_(std::make_unique<Pattern>()) {
  int error = 0;
  std::size_t offset = 0;
  pattern_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression), PCRE2_ZERO_TERMINATED,
                                 PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &error, &offset, nullptr);
  expect(pattern_->code != nullptr, "PCRE2 rejects GPT-2's expression at character {}: error {}", offset, error);
  pattern_->compiled_to_machine_code = pcre2_jit_compile(pattern_->code, PCRE2_JIT_COMPLETE) == 0;
  pattern_->match = pcre2_match_data_create_from_pattern(pattern_->code, nullptr);
  expect(pattern_->match != nullptr, "PCRE2 is out of memory");
}

WordSplitter::~WordSplitter() = default;

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
  bool blanks = false;
  std::size_t end = pattern_->end_of(matched_, at_, blanks);
  // \s+(?!\S): the last of several blanks is left to the word that follows.
  if (blanks && end < matched_.size()) {
    const std::size_t last = last_character(matched_, end);
    if (last > at_) end = last;
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

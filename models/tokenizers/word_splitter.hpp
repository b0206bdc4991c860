// Cuts text into words like GPT-2, with its regular expression on PCRE2:
//
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// \s is Unicode's White_Space. A byte outside UTF-8 characters counts as a character that is neither blank, letter
// nor number. Every byte belongs to exactly one word. One thread at a time.
#pragma once

#include "models/tokenizers/added_tokens.hpp"
#include "models/tokenizers/unicode_pattern.hpp"

#include <cstddef>
#include <string>
#include <string_view>

namespace ranvier::models {

class WordSplitter {
 public:
  WordSplitter();

  /// Starts a text, which must stay valid until the last word was taken.
  void start(std::string_view text);
  /// Next word; empty at the end of the text.
  [[nodiscard]] std::string_view next();

 private:
  UnicodePattern::Finder finder_;
  std::string_view text_;
  std::string_view matched_;  // text_, or valid_ if text_ is not UTF-8
  std::string valid_;
  std::size_t at_ = 0;
};

/// Positions at which a text may be cut without changing a word.
enum class SplitPoints {
  blanks,  ///< before an ASCII blank after another character
  spaces,  ///< before a space after a character other than U+2581, which some tokenizers use for spaces
  nowhere,
};

/// Such positions, except those that a token of `apart` may touch.
struct TextCuts {
  SplitPoints places = SplitPoints::blanks;
  const AddedTokens* apart = nullptr;  ///< added tokens; null: none; must outlive this
};

/// Last such position at or before `most`; 0 if there is none. Any thread.
[[nodiscard]] std::size_t last_cut(std::string_view text, std::size_t most, TextCuts cuts = {});
/// First such position at or after `least`; the text's size if there is none. Any thread.
[[nodiscard]] std::size_t first_cut(std::string_view text, std::size_t least, TextCuts cuts = {});

}  // namespace ranvier::models

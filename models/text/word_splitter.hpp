// How GPT-2 cuts text into words before it merges their bytes, by its own regular expression on PCRE2:
//
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// \s is Unicode's White_Space. A byte that belongs to no UTF-8 character counts as a character of its own that is
// neither blank, letter nor number. Every byte belongs to exactly one word. One thread at a time.
#pragma once

#include "models/text/added_tokens.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace ranvier::models {

class WordSplitter {
 public:
  WordSplitter();
  ~WordSplitter();
  WordSplitter(const WordSplitter&) = delete;
  WordSplitter& operator=(const WordSplitter&) = delete;

  /// Starts on a text, which stays where it is until the last word was taken.
  void start(std::string_view text);
  /// The next word; empty at the end of the text.
  [[nodiscard]] std::string_view next();

 private:
  struct Pattern;
  std::unique_ptr<Pattern> pattern_;
  std::string_view text_;
  std::string_view matched_;  // text_, or valid_ where that is no UTF-8
  std::string valid_;
  std::size_t at_ = 0;
};

/// Where a text can be cut without any word changing, whatever comes before and after it.
enum class SplitPoints {
  blanks,  ///< before an ASCII blank that follows something else
  spaces,  ///< before a space that follows something else, U+2581 apart, as which some tokenizers write spaces
  nowhere,
};

/// Such places, but none that a token of `apart` may touch.
struct TextCuts {
  SplitPoints places = SplitPoints::blanks;
  const AddedTokens* apart = nullptr;  ///< null: no tokens; outlives this
};

/// The last such place not behind `most`; 0 if there is none. Any thread, as the next.
[[nodiscard]] std::size_t last_cut(std::string_view text, std::size_t most, TextCuts cuts = {});
/// The first such place from `least` on; the text's size if there is none.
[[nodiscard]] std::size_t first_cut(std::string_view text, std::size_t least, TextCuts cuts = {});

}  // namespace ranvier::models

// Cuts normalized text into words; tokens do not cross words. Each step cuts the words of the previous one, named as
// in Hugging Face's tokenizer.json. Texts are UTF-8. Any thread.
#pragma once

#include "models/tokenizers/normalizer.hpp"
#include "models/tokenizers/unicode_pattern.hpp"

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace ranvier::models {

/// Words of a text, from left to right; text between them is dropped.
struct CutText {
  struct Range {
    std::size_t begin = 0, end = 0;  ///< not empty
  };
  std::string text;
  std::vector<Range> ranges;
};

struct PreTokenizer {
  std::function<void(CutText& words, TextPosition place)> cut;
  /// Whether it always starts a word at a space that follows another character.
  bool cuts_before_spaces = false;
  /// Whether a text that is cut at such a space gets the same words, except for the word at the cut.
  bool is_local = cuts_before_spaces;
  /// Whether a text may also be cut between two blanks: words contain no blanks, or each blank starts one.
  bool cuts_between_blanks = false;
};

using PreTokenizers = std::vector<PreTokenizer>;

/// Treatment of a match that separates words.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

/// Expressions of GPT-2 (word_splitter.hpp) and of the tokenizers package's Whitespace, which matches words.
inline constexpr const char* gpt2_expression =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr const char* words_expression = R"([\w\x{200c}\x{200d}]+|[^\w\x{200c}\x{200d}\s]+)";

/// Cuts at the matches of an expression, or if `inverted` around them.
[[nodiscard]] PreTokenizer split_by(const std::string& expression, const std::string& where, SplitBehavior behavior,
                                    bool inverted = false);
[[nodiscard]] PreTokenizer split_by_punctuation(SplitBehavior behavior);
[[nodiscard]] PreTokenizer split_by_white_space();
/// Removes white space and isolates punctuation.
[[nodiscard]] PreTokenizer split_as_bert();
/// Adds a space before each word that does not start with one.
[[nodiscard]] PreTokenizer prefix_space();

struct Metaspace {
  enum class Prepend { never, first, always };
  std::string replacement = "\u2581";  ///< replacement of spaces
  Prepend prepend = Prepend::always;   ///< when to prepend it to texts that do not start with it
  bool splits = true;                  ///< whether to cut before each
};
[[nodiscard]] PreTokenizer split_by_metaspace(const Metaspace& what);

/// Cuts before each `mark` that follows another text.
[[nodiscard]] PreTokenizer split_before(std::string mark);

}  // namespace ranvier::models

// How a tokenizer cuts normalised text into words, within which alone tokens lie: steps, each of which cuts what the
// one before it left, as Hugging Face's tokenizer.json names them. Texts are UTF-8. Any thread.
#pragma once

#include "models/text/normalizer.hpp"
#include "models/text/unicode_pattern.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::models {

/// Words of a text, from left to right; what lies before and between them is none.
struct CutText {
  struct Range {
    std::size_t begin = 0, end = 0;  ///< not empty
  };
  std::string text;
  std::vector<Range> ranges;
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void cut(CutText& words, TextPosition place) const = 0;
  /// Whether it always begins a word at a space that follows another character, whatever lies before and behind.
  [[nodiscard]] virtual bool cuts_before_spaces() const = 0;
  /// Whether it cuts a text that is cut at such a space as it cuts the whole, but for the word that goes on there.
  [[nodiscard]] virtual bool is_local() const { return cuts_before_spaces(); }
  /// Whether a text may also be cut between two blanks: it leaves none in words, or begins a word at each.
  [[nodiscard]] virtual bool cuts_between_blanks() const { return false; }
};

using PreTokenizers = std::vector<std::unique_ptr<const PreTokenizer>>;

/// What becomes of a match that separates words.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

/// GPT-2's own expression (word_splitter.hpp).
[[nodiscard]] const std::string& gpt2_expression();

/// At the matches of an expression, or with `inverted` at what is none.
[[nodiscard]] std::unique_ptr<const PreTokenizer> split_by(const std::string& expression, const std::string& where,
                                                           SplitBehavior behavior, bool inverted = false);
[[nodiscard]] std::unique_ptr<const PreTokenizer> split_by_punctuation(SplitBehavior behavior);
[[nodiscard]] std::unique_ptr<const PreTokenizer> split_by_white_space();
/// White space goes, punctuation stands alone.
[[nodiscard]] std::unique_ptr<const PreTokenizer> split_as_bert();
/// A space before each word that begins with none.
[[nodiscard]] std::unique_ptr<const PreTokenizer> prefix_space();

struct Metaspace {
  enum class Prepend { never, first, always };
  std::string replacement = "\u2581";  ///< of spaces
  Prepend prepend = Prepend::always;   ///< it to texts that do not begin with it
  bool splits = true;                  ///< before each
};
[[nodiscard]] std::unique_ptr<const PreTokenizer> split_by_metaspace(Metaspace what);

/// Before each `mark` that follows something else.
[[nodiscard]] std::unique_ptr<const PreTokenizer> split_before(std::string mark);

}  // namespace ranvier::models

// What a tokenizer makes of text before it cuts words: steps, one after another, as Hugging Face's tokenizer.json and
// SentencePiece's models name them. Texts are UTF-8. Any thread.
#pragma once

#include "models/text/unicode.hpp"
#include "models/text/unicode_pattern.hpp"

#include <memory>
#include <string>
#include <vector>

namespace ranvier::models {

/// Where in a document a text is that is normalised or cut by itself: what stands before words stands there alone.
struct TextPosition {
  bool begins = true;  ///< the document, or what follows a token that text spelled
  bool first = true;   ///< the document
};

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(std::string& text, TextPosition place) const = 0;
  /// Whether a text that is cut before a space, behind another character, comes out cut, its second part not beginning
  /// anything, and the cut behind no blank, unless it may be `between_blanks`.
  [[nodiscard]] virtual bool is_local(bool between_blanks) const {
    static_cast<void>(between_blanks);
    return true;
  }
};

using Normalizers = std::vector<std::unique_ptr<const Normalizer>>;

[[nodiscard]] std::unique_ptr<const Normalizer> normal_form(NormalForm form);
[[nodiscard]] std::unique_ptr<const Normalizer> lowercase();
/// All marks; BERT's own takes those alone that need no space.
[[nodiscard]] std::unique_ptr<const Normalizer> strip_accents();
/// White space at the ends.
[[nodiscard]] std::unique_ptr<const Normalizer> strip(bool left, bool right);
[[nodiscard]] std::unique_ptr<const Normalizer> prepend(std::string text);
[[nodiscard]] std::unique_ptr<const Normalizer> replace_text(std::string from, std::string to);
[[nodiscard]] std::unique_ptr<const Normalizer> replace_matches(UnicodePattern from, std::string to);

struct BertNormalization {
  bool clean_text = true;            ///< no control characters, every white space a space
  bool handle_chinese_chars = true;  ///< spaces around ideographs
  bool strip_accents = true;
  bool lowercase = true;
};
[[nodiscard]] std::unique_ptr<const Normalizer> bert_normalizer(BertNormalization what);

struct SentencePieceNormalization {
  bool add_dummy_prefix = true;          ///< a space before the document
  bool remove_extra_whitespaces = true;  ///< at the ends, and of several all but one
  bool escape_whitespaces = true;        ///< spaces become U+2581
};
[[nodiscard]] std::unique_ptr<const Normalizer> sentencepiece_normalizer(SentencePieceNormalization what);

/// All instances of `from`, not empty, one after another.
void replace_all(std::string& text, std::string_view from, std::string_view to);

}  // namespace ranvier::models

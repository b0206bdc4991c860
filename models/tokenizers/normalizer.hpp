// Normalization of text before words are cut: a list of steps, named as in Hugging Face's tokenizer.json and
// SentencePiece models. Texts are UTF-8. Any thread.
#pragma once

#include "models/tokenizers/unicode.hpp"
#include "models/tokenizers/unicode_pattern.hpp"

#include <functional>
#include <string>
#include <vector>

namespace ranvier::models {

/// Position in the document of a text that is normalized or cut separately.
struct TextPosition {
  bool begins = true;  ///< start of the document, or directly after an added token
  bool first = true;   ///< start of the document
};

struct Normalizer {
  std::function<void(std::string& text, TextPosition place)> apply;
  /// Whether normalizing the parts of a text separately equals normalizing the text, if it is cut before a space
  /// behind another character. The second part does not begin a document. `between_blanks`: only if words may be cut
  /// behind a blank, too.
  enum class Local { yes, between_blanks, no } local = Local::yes;
};

using Normalizers = std::vector<Normalizer>;

[[nodiscard]] Normalizer normal_form(NormalForm form);
[[nodiscard]] Normalizer lowercase();
/// Removes all marks; BERT removes only those that need no space.
[[nodiscard]] Normalizer strip_accents();
/// Removes white space at the ends.
[[nodiscard]] Normalizer strip(bool left, bool right);
[[nodiscard]] Normalizer prepend(std::string before);
[[nodiscard]] Normalizer replace_text(std::string from, std::string to);
[[nodiscard]] Normalizer replace_matches(UnicodePattern from, std::string to);

struct BertNormalization {
  bool clean_text = true;            ///< remove control characters; every white space becomes a space
  bool handle_chinese_chars = true;  ///< add spaces around ideographs
  bool strip_accents = true;
  bool lowercase = true;
};
[[nodiscard]] Normalizer bert_normalizer(BertNormalization what);

struct SentencePieceNormalization {
  bool add_dummy_prefix = true;          ///< add a space before the document
  bool remove_extra_whitespaces = true;  ///< remove spaces at the ends and repeated spaces
  bool escape_whitespaces = true;        ///< replace spaces by U+2581
};
[[nodiscard]] Normalizer sentencepiece_normalizer(SentencePieceNormalization what);

/// Replaces all occurrences of `from` (not empty).
void replace_all(std::string& text, std::string_view from, std::string_view to);

}  // namespace ranvier::models

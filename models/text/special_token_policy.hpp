#pragma once

namespace ranvier::models {

/// Special tokens (<s>, <|user|>, [MASK]) of text that is encoded.
enum class SpecialTokenPolicy {
  tokenizer,  ///< as in transformers: text that spells one becomes it, and the template's stand around texts
  text,       ///< text that spells one stays text, so that no text can end a document; the template's stand around
  none,       ///< text that spells one stays text, and none stand around
};

}  // namespace ranvier::models

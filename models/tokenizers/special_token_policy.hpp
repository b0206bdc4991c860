#pragma once

namespace ranvier::models {

/// Treatment of special tokens (<s>, <|user|>, [MASK]) when encoding text.
enum class SpecialTokenPolicy {
  tokenizer,  ///< as in transformers: spellings become tokens; the template's tokens are added around texts
  text,       ///< spellings stay text, so text cannot end a document; the template's tokens are added
  none,       ///< spellings stay text; no tokens are added
};

}  // namespace ranvier::models

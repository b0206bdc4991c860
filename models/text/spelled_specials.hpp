#pragma once

namespace ranvier::models {

/// What text that spells a special token (<|endoftext|>, [MASK]) becomes.
enum class SpelledSpecials {
  text,   ///< what any other text does: no text can then end a document
  token,  ///< the token
};

}  // namespace ranvier::models

// Encodes text with GPT-2's byte-level BPE: WordSplitter cuts words, BpeVocabulary's merges join their bytes, and a
// cache keeps the tokens of recent words. One thread at a time; several encoders may share a vocabulary.
#pragma once

#include "models/tokenizers/added_tokens.hpp"
#include "models/tokenizers/bpe_vocabulary.hpp"
#include "models/tokenizers/word_cache.hpp"
#include "models/tokenizers/word_merger.hpp"
#include "models/tokenizers/word_splitter.hpp"

#include <cstdint>
#include <string_view>
#include <vector>

namespace ranvier::models {

class BpeEncoder {
 public:
  /// The vocabulary outlives the encoder.
  explicit BpeEncoder(const BpeVocabulary& vocabulary, SpecialTokenPolicy specials = SpecialTokenPolicy::text);

  /// Appends the tokens of `text`, which may be any bytes.
  void encode(std::string_view text, std::vector<std::int32_t>& to);

 private:
  void encode_ordinary(std::string_view text, std::vector<std::int32_t>& to);

  const BpeVocabulary& vocabulary_;
  SpecialTokenPolicy specials_;
  WordSplitter splitter_;
  WordCache known_;
  WordMerger merger_;
};

}  // namespace ranvier::models

// Text to the tokens of a byte-level BPE: WordSplitter cuts words, BpeVocabulary's merges join their bytes. Words
// that were met are kept with their tokens, in a table of fixed size in which a later word may take the place of an
// earlier one, so that common words cost a look and nothing is allocated per word.
//
// BpeEncoder is for one thread at a time; several may share a vocabulary. TextEncoder has threads of its own.
#pragma once

#include "models/text/bpe_vocabulary.hpp"
#include "models/text/word_splitter.hpp"
#include "runtime/compute_pool.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace ranvier::models {

/// What text that spells <|endoftext|> becomes.
enum class SpelledSpecials {
  text,   ///< what any other text does: no text can then end a document
  token,  ///< the token
};

class BpeEncoder {
 public:
  /// The vocabulary outlives the encoder.
  explicit BpeEncoder(const BpeVocabulary& vocabulary, SpelledSpecials specials = SpelledSpecials::text);
  ~BpeEncoder();

  /// Appends the tokens of any bytes.
  void encode(std::string_view text, std::vector<std::int32_t>& to);

 private:
  struct KnownWord;
  struct Part;

  void encode_ordinary(std::string_view text, std::vector<std::int32_t>& to);
  void merge(std::string_view word, std::vector<std::int32_t>& to);
  void merge_short(std::vector<std::int32_t>& to);
  void merge_long(std::vector<std::int32_t>& to);

  const BpeVocabulary& vocabulary_;
  SpelledSpecials specials_;
  WordSplitter splitter_;
  std::vector<KnownWord> known_;
  std::vector<Part> parts_;
  std::vector<std::uint64_t> queue_;
};

class TextEncoder {
 public:
  /// The vocabulary outlives the encoder; `threads` counts the caller's.
  TextEncoder(const BpeVocabulary& vocabulary, int threads, SpelledSpecials specials = SpelledSpecials::text);

  /// Appends the same tokens as BpeEncoder would, whatever the number of threads.
  void encode(std::string_view text, std::vector<std::int32_t>& to);
  /// The same of several texts at once; `ends`: the size of `to` after each.
  void encode(std::span<const std::string_view> texts, std::vector<std::int32_t>& to,
              std::vector<std::size_t>& ends);

 private:
  runtime::ComputePool pool_;
  std::vector<std::unique_ptr<BpeEncoder>> encoders_;
  std::vector<std::vector<std::int32_t>> tokens_;  // of a piece each
};

}  // namespace ranvier::models

// Tokens and merges of a byte-level byte pair encoding (GPT-2, "Language Models are Unsupervised Multitask Learners",
// §2.2). A word starts as its bytes. The neighbours with the merge of the lowest rank are joined first, until no
// merge applies. The vocabulary is data only; any thread.
#pragma once

#include "models/tokenizers/added_tokens.hpp"
#include "models/tokenizers/merge_table.hpp"
#include "models/tokenizers/word_cache.hpp"
#include "models/tokenizers/word_merger.hpp"
#include "models/tokenizers/word_splitter.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::models {

/// Spelling of the token between documents.
inline constexpr std::string_view end_of_text_spelling = "<|endoftext|>";

class BpeVocabulary {
 public:
  struct Merge {
    std::int32_t left = 0;
    std::int32_t right = 0;
    std::int32_t rank = 0;
    std::int32_t token = 0;  ///< token that the pair becomes
  };

  /// `tokens[id]` has the bytes of token `id`; no text encodes to `end_of_text`. If two merges join the same pair,
  /// the lower rank applies. Throws ErrorCode::data, naming `origin`, if a byte is not a token, a token is empty, or
  /// two tokens other than `end_of_text` have the same bytes.
  BpeVocabulary(const std::string& origin, std::span<const std::string> tokens, std::int32_t end_of_text,
                std::span<const Merge> merges);

  [[nodiscard]] std::int32_t size() const noexcept { return static_cast<std::int32_t>(begins_.size()) - 1; }
  [[nodiscard]] std::int32_t end_of_text() const noexcept { return end_of_text_; }
  [[nodiscard]] std::int32_t token_of(std::uint8_t byte) const noexcept { return byte_tokens_[byte]; }

  /// Bytes of a token below size().
  [[nodiscard]] std::string_view bytes_of(std::int32_t token) const noexcept {
    const auto i = static_cast<std::size_t>(token);
    return {bytes_.data() + begins_[i], begins_[i + 1] - begins_[i]};
  }

  [[nodiscard]] const MergeTable& merges() const noexcept { return merges_; }

  /// Appends the bytes of the tokens: the inverse of encoding, also for bytes that are not UTF-8. Throws
  /// ErrorCode::data for a token that is not below size().
  void decode(std::span<const std::int32_t> tokens, std::string& to) const;

 private:
  std::string origin_;
  std::string bytes_;                // bytes of all tokens, concatenated
  std::vector<std::size_t> begins_;  // start of each token in bytes_, and the end of the last
  std::array<std::int32_t, 256> byte_tokens_{};
  MergeTable merges_;
  std::int32_t end_of_text_ = 0;
};

/// Encodes text with GPT-2's byte-level BPE: WordSplitter cuts words, BpeVocabulary's merges join their bytes, and a
/// cache keeps the tokens of recent words. One thread at a time; several encoders may share a vocabulary.
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

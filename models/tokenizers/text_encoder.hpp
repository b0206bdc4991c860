// Encodes text on several threads. Call from one thread at a time.
#pragma once

#include "models/tokenizers/tokenizer.hpp"
#include "runtime/host/compute_pool.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace ranvier::models {

class TextEncoder {
 public:
  /// The tokenizer must outlive the encoder; `threads` includes the calling thread.
  TextEncoder(const Tokenizer& tokenizer, int threads, SpecialTokenPolicy specials);

  /// A document, or a part that was cut as Tokenizer::cuts() allows.
  struct Passage {
    std::string_view text;
    bool begins = true;  ///< whether it starts a document
  };

  /// Appends the tokens of a document; the result does not depend on the number of threads.
  void encode(std::string_view text, std::vector<std::int32_t>& to);
  /// Encodes passages; tokens() returns their tokens until the next call.
  void encode(std::span<const Passage> passages);
  /// Tokens of `count` passages starting at number `first`.
  [[nodiscard]] std::span<const std::int32_t> tokens(std::size_t first, std::size_t count = 1) const {
    return std::span(tokens_).subspan(starts_[first], starts_[first + count] - starts_[first]);
  }

 private:
  TextCuts cuts_;
  runtime::ComputePool pool_;
  std::vector<std::unique_ptr<DocumentEncoder>> encoders_;
  std::vector<std::vector<std::int32_t>> piece_tokens_;
  std::vector<std::int32_t> tokens_;
  std::vector<std::size_t> starts_;  // start of each passage in tokens_, and the end of the last
};

/// Throws ErrorCode::data if a token of `path` is outside the vocabulary.
void check_vocabulary(std::span<const std::int32_t> tokens, int vocab_size, const std::filesystem::path& path);

}  // namespace ranvier::models

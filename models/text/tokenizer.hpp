// Text to tokens and back, whichever tokens a model was trained on: bytes, or those of a byte-level BPE. Any thread.
#pragma once

#include "models/text/bpe_vocabulary.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::models {

class Tokenizer {
 public:
  /// Bytes.
  Tokenizer() = default;
  explicit Tokenizer(BpeVocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}

  /// Tokens below this one stand for something.
  [[nodiscard]] std::int32_t size() const noexcept { return vocabulary_ ? vocabulary_->size() : 256; }
  /// What stands between documents; none: nothing does.
  [[nodiscard]] std::optional<std::int32_t> end_of_text() const noexcept;

  /// Text that spells <|endoftext|> becomes that token where there is one.
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const;
  /// Appends the bytes that a token below size() stands for; nothing for the end of text.
  void decode(std::int32_t token, std::string& to) const;

 private:
  std::optional<BpeVocabulary> vocabulary_;
};

}  // namespace ranvier::models

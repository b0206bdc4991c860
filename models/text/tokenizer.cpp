#include "models/text/tokenizer.hpp"

#include "models/text/bpe_encoder.hpp"
#include "runtime/error.hpp"

namespace ranvier::models {

std::optional<std::int32_t> Tokenizer::end_of_text() const noexcept {
  return vocabulary_ ? std::optional(vocabulary_->end_of_text()) : std::nullopt;
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> tokens;
  if (vocabulary_) {
    BpeEncoder(*vocabulary_, SpelledSpecials::token).encode(text, tokens);
  } else {
    for (const char byte : text) tokens.push_back(static_cast<unsigned char>(byte));
  }
  return tokens;
}

void Tokenizer::decode(std::int32_t token, std::string& to) const {
  expect(token >= 0 && token < size(), "token {} of {}", token, size());
  if (!vocabulary_) {
    to += static_cast<char>(token);
  } else if (token != vocabulary_->end_of_text()) {
    to += vocabulary_->bytes_of(token);
  }
}

}  // namespace ranvier::models

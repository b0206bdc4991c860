#include "models/tokenizers/tokenizer.hpp"

#include "runtime/base/error.hpp"
#include "runtime/files/xxh3.hpp"

namespace ranvier::models {
namespace {

struct Bytes final : DocumentEncoder {
  void encode(std::string_view text, bool, std::vector<std::int32_t>& to) override {
    for (const char byte : text) to.push_back(static_cast<unsigned char>(byte));
  }
};

struct Gpt2Words final : DocumentEncoder {
  Gpt2Words(const BpeVocabulary& vocabulary, SpecialTokenPolicy specials) : encoder(vocabulary, specials) {}
  void encode(std::string_view text, bool, std::vector<std::int32_t>& to) override { encoder.encode(text, to); }
  BpeEncoder encoder;
};

}  // namespace

std::int32_t Tokenizer::size() const noexcept {
  return vocabulary_ ? vocabulary_->size() : pipeline_ ? pipeline_->spelling->size() : 256;
}

SpecialTokens Tokenizer::specials() const noexcept {
  if (pipeline_) return pipeline_->specials;
  SpecialTokens specials;
  if (vocabulary_) specials.end_of_text = vocabulary_->end_of_text();
  return specials;
}

const TextTemplate& Tokenizer::around() const noexcept {
  static const TextTemplate nothing;
  return pipeline_ ? pipeline_->around : nothing;
}

std::int32_t Tokenizer::required_end_of_text() const {
  if (const auto token = end_of_text()) return *token;
  fail(ErrorCode::data,
       "{}: the tokenizer has no end-of-text token; set eos_token in tokenizer_config.json in the same folder",
       pipeline_ ? pipeline_->origin : "bytes");
}

std::uint64_t Tokenizer::fingerprint() const {
  if (pipeline_) return pipeline_->fingerprint;
  std::string all;
  for (std::int32_t token = 0; vocabulary_ && token < vocabulary_->size(); ++token)
    all += vocabulary_->bytes_of(token);
  return runtime::xxh3(std::as_bytes(std::span(all)));
}

TextCuts Tokenizer::cuts(SpecialTokenPolicy specials) const {
  return pipeline_ ? pipeline_->cuts(specials) : TextCuts();
}

std::unique_ptr<DocumentEncoder> Tokenizer::encoder(SpecialTokenPolicy specials) const {
  if (vocabulary_) return std::make_unique<Gpt2Words>(*vocabulary_, specials);
  if (pipeline_) return std::make_unique<PipelineEncoder>(*pipeline_, specials);
  return std::make_unique<Bytes>();
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, SpecialTokenPolicy specials) const {
  std::vector<std::int32_t> tokens;
  encoder(specials)->encode(text, true, tokens);
  return tokens;
}

std::string Tokenizer::spelled(std::int32_t token) const {
  expect(token >= 0 && token < size(), "token is out of range: {} of {}", token, size());
  if (pipeline_) return std::string(pipeline_->spelling->spelled(token));
  return vocabulary_ ? std::string(vocabulary_->bytes_of(token)) : std::string(1, static_cast<char>(token));
}

void Tokenizer::decode(std::int32_t token, std::string& to) const {
  expect(token >= 0 && token < size(), "token is out of range: {} of {}", token, size());
  if (pipeline_) {
    TokenSpelling::Position inside{.is_first = false, .strips = 0};
    pipeline_->spelling->append(token, inside, to);
  } else if (!vocabulary_) {
    to += static_cast<char>(token);
  } else if (token != vocabulary_->end_of_text()) {
    to += vocabulary_->bytes_of(token);
  }
}

std::string Tokenizer::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  TokenSpelling::Position position;
  if (pipeline_) position = pipeline_->spelling->beginning();
  const std::int32_t known = size();
  const std::int32_t silent = vocabulary_ ? vocabulary_->end_of_text() : -1;
  for (const std::int32_t token : tokens) {
    if (token < 0 || token >= known)
      fail(ErrorCode::data, "token {} is not one of the tokenizer's {}; use the tokenizer that wrote the tokens",
           token, known);
    if (pipeline_) {
      pipeline_->spelling->append(token, position, text);
    } else if (!vocabulary_) {
      text += static_cast<char>(token);
    } else if (token != silent) {
      text += vocabulary_->bytes_of(token);
    }
  }
  return text;
}

}  // namespace ranvier::models

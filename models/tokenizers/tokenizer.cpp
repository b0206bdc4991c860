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

}  // namespace

std::int32_t Tokenizer::size() const noexcept { return pipeline_ ? pipeline_->spelling->size() : 256; }

SpecialTokens Tokenizer::specials() const noexcept { return pipeline_ ? pipeline_->specials : SpecialTokens(); }

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

std::uint64_t Tokenizer::fingerprint() const { return pipeline_ ? pipeline_->fingerprint : runtime::xxh3({}); }

TextCuts Tokenizer::cuts(SpecialTokenPolicy specials) const {
  return pipeline_ ? pipeline_->cuts(specials) : TextCuts();
}

std::unique_ptr<DocumentEncoder> Tokenizer::encoder(SpecialTokenPolicy specials) const {
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
  return pipeline_ ? std::string(pipeline_->spelling->spelled(token)) : std::string(1, static_cast<char>(token));
}

void Tokenizer::append(std::int32_t token, TokenSpelling::Position& position, std::string& to) const {
  if (pipeline_)
    pipeline_->spelling->append(token, position, to);
  else
    to += static_cast<char>(token);
}

void Tokenizer::decode(std::int32_t token, std::string& to) const {
  expect(token >= 0 && token < size(), "token is out of range: {} of {}", token, size());
  TokenSpelling::Position inside{.is_first = false, .strips = 0};
  append(token, inside, to);
}

std::string Tokenizer::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  TokenSpelling::Position position;
  if (pipeline_) position = pipeline_->spelling->beginning();
  const std::int32_t known = size();
  for (const std::int32_t token : tokens) {
    if (token < 0 || token >= known)
      fail(ErrorCode::data, "token {} is not one of the tokenizer's {}; use the tokenizer that wrote the tokens",
           token, known);
    append(token, position, text);
  }
  return text;
}

}  // namespace ranvier::models

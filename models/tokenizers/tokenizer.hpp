// Encodes text as tokens and decodes them: bytes, or a pipeline that was read from files. Cheap to copy; any thread.
#pragma once

#include "models/tokenizers/tokenizer_pipeline.hpp"
#include "models/tokenizers/word_splitter.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::models {

class Tokenizer {
 public:
  /// Bytes as tokens.
  Tokenizer() = default;
  explicit Tokenizer(std::shared_ptr<const TokenizerPipeline> pipeline) : pipeline_(std::move(pipeline)) {}

  /// Upper bound of the tokens.
  [[nodiscard]] std::int32_t size() const noexcept;
  /// Token between documents, if any.
  [[nodiscard]] std::optional<std::int32_t> end_of_text() const noexcept { return specials().end_of_text; }
  /// Like end_of_text(), but throws ErrorCode::data with a remedy if there is none.
  [[nodiscard]] std::int32_t required_end_of_text() const;
  [[nodiscard]] SpecialTokens specials() const noexcept;
  /// Tokens around a single text, such as LLaMA's <s>. encode() does not add them (document_frame.hpp).
  [[nodiscard]] const TextTemplate& around() const noexcept;
  /// Differs if texts are encoded differently.
  [[nodiscard]] std::uint64_t fingerprint() const;

  /// Positions at which texts may be cut and encoded separately. Valid as long as the tokenizer.
  [[nodiscard]] TextCuts cuts(SpecialTokenPolicy specials) const;
  /// The tokenizer must outlive the encoder.
  [[nodiscard]] std::unique_ptr<DocumentEncoder> encoder(SpecialTokenPolicy specials) const;

  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text,
                                                 SpecialTokenPolicy specials = SpecialTokenPolicy::tokenizer) const;
  /// Spelling of a token below size(), special or not.
  [[nodiscard]] std::string spelled(std::int32_t token) const;
  /// Appends the bytes of a token below size() inside a text; none for special tokens.
  void decode(std::int32_t token, std::string& to) const;
  /// Decodes a complete text, without the prefix that encoding adds.
  [[nodiscard]] std::string decode(std::span<const std::int32_t> tokens) const;

 private:
  void append(std::int32_t token, TokenSpelling::Position& position, std::string& to) const;

  std::shared_ptr<const TokenizerPipeline> pipeline_;  // null: bytes
};

}  // namespace ranvier::models

// Text to tokens and back, whichever tokens a model was trained on: bytes, GPT-2's byte-level BPE, or what a pipeline
// of parts makes. Cheap to copy; any thread.
#pragma once

#include "models/text/bpe_vocabulary.hpp"
#include "models/text/tokenizer_pipeline.hpp"
#include "models/text/word_splitter.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::models {

/// Documents to tokens, with words that were met before in mind. One thread at a time.
class DocumentEncoder {
 public:
  virtual ~DocumentEncoder() = default;
  /// Appends the tokens of any bytes: a document, or with `begins` false what goes on with one behind a cut.
  virtual void encode(std::string_view text, bool begins, std::vector<std::int32_t>& to) = 0;
};

class Tokenizer {
 public:
  /// Bytes.
  Tokenizer() = default;
  explicit Tokenizer(BpeVocabulary vocabulary)
      : vocabulary_(std::make_shared<const BpeVocabulary>(std::move(vocabulary))) {}
  explicit Tokenizer(std::shared_ptr<const TokenizerPipeline> pipeline) : pipeline_(std::move(pipeline)) {}

  /// Tokens below this one stand for something.
  [[nodiscard]] std::int32_t size() const noexcept;
  /// What stands between documents; none: nothing does.
  [[nodiscard]] std::optional<std::int32_t> end_of_text() const noexcept { return specials().end_of_text; }
  /// The same. Throws ErrorCode::data, saying how to name it, if there is none.
  [[nodiscard]] std::int32_t required_end_of_text() const;
  [[nodiscard]] SpecialTokens specials() const noexcept;
  /// Tokens around a text by itself, such as LLaMA's <s>. encode() leaves them to its caller (document_frame.hpp).
  [[nodiscard]] const TextTemplate& around() const noexcept;
  /// Another one where texts become other tokens.
  [[nodiscard]] std::uint64_t fingerprint() const;

  /// Where texts may be cut and encoded one by one; not after the tokenizer's end.
  [[nodiscard]] TextCuts cuts(SpecialTokenPolicy specials) const;
  /// The tokenizer outlives it.
  [[nodiscard]] std::unique_ptr<DocumentEncoder> encoder(SpecialTokenPolicy specials) const;

  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text,
                                                 SpecialTokenPolicy specials = SpecialTokenPolicy::tokenizer) const;
  /// How a token below size() is spelled, special or not.
  [[nodiscard]] std::string spelled(std::int32_t token) const;
  /// Appends the bytes that a token below size() stands for inside of a text; nothing for special tokens.
  void decode(std::int32_t token, std::string& to) const;
  /// A whole text; what encoding puts before one goes.
  [[nodiscard]] std::string decode(std::span<const std::int32_t> tokens) const;

 private:
  std::shared_ptr<const BpeVocabulary> vocabulary_;
  std::shared_ptr<const TokenizerPipeline> pipeline_;
};

}  // namespace ranvier::models

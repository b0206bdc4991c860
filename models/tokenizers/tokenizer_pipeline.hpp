// A tokenizer as a pipeline: added tokens, normalizers, pre-tokenizers, a model of words, and decoders. Data only;
// any thread.
#pragma once

#include "models/tokenizers/added_tokens.hpp"
#include "models/tokenizers/normalizer.hpp"
#include "models/tokenizers/pre_tokenizer.hpp"
#include "models/tokenizers/subword_model.hpp"
#include "models/tokenizers/text_template.hpp"
#include "models/tokenizers/token_spelling.hpp"
#include "models/tokenizers/word_splitter.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::models {

/// Numbers of the tokens without text.
struct SpecialTokens {
  std::optional<std::int32_t> begin_of_text, end_of_text, unknown, separator, padding, classifier, mask;
};

struct TokenizerPipeline {
  std::string origin;                     ///< file name, for messages
  std::uint64_t fingerprint = 0;          ///< hash of the encoding, without the roles of special tokens
  AddedTokens spelled, spelled_normally;  ///< added tokens found before and after normalization
  Normalizers normalizers;
  PreTokenizers pre_tokenizers;
  SubwordModel model;
  std::unique_ptr<const TokenSpelling> spelling;
  SpecialTokens specials;
  TextTemplate around;            ///< template, which encoders do not add
  bool splits_like_gpt2 = false;  ///< words are WordSplitter's, of any bytes; there are no steps before the model
  bool cuts_before_spaces =
      false;  ///< no token crosses a space: pre-tokenizers split there, or no merge joins across it

  /// Positions at which any text may be cut and encoded separately.
  [[nodiscard]] TextCuts cuts(SpecialTokenPolicy special_tokens) const;
};

/// Encodes documents, with a cache of words. One thread at a time.
class DocumentEncoder {
 public:
  virtual ~DocumentEncoder() = default;
  /// Appends the tokens of any bytes: a document, or the part after a cut if `begins` is false.
  virtual void encode(std::string_view text, bool begins, std::vector<std::int32_t>& to) = 0;
};

class PipelineEncoder final : public DocumentEncoder {
 public:
  /// The pipeline must outlive the encoder.
  PipelineEncoder(const TokenizerPipeline& pipeline, SpecialTokenPolicy specials);

  /// Bytes outside UTF-8 characters are encoded one by one, unless the pipeline splits like GPT-2.
  void encode(std::string_view text, bool begins, std::vector<std::int32_t>& to) override;

 private:
  void encode_part(std::string_view text, TextPosition place, std::vector<std::int32_t>& to);
  void encode_characters(std::string_view text, TextPosition place, std::vector<std::int32_t>& to);
  void encode_words(std::string_view text, TextPosition place, std::vector<std::int32_t>& to);

  const TokenizerPipeline& pipeline_;
  SpecialTokenPolicy specials_;
  std::unique_ptr<WordEncoder> model_;
  std::optional<WordSplitter> splitter_;
  std::string normal_;
  CutText words_;
};

}  // namespace ranvier::models

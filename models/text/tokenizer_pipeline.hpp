// A tokenizer from parts: tokens that text spells, normalisers, cuts into words, a model of words, and the way back.
// Data alone; any thread.
#pragma once

#include "models/text/added_tokens.hpp"
#include "models/text/normalizer.hpp"
#include "models/text/pre_tokenizer.hpp"
#include "models/text/subword_model.hpp"
#include "models/text/text_template.hpp"
#include "models/text/token_spelling.hpp"
#include "models/text/word_splitter.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::models {

/// Numbers of the tokens that stand for no text.
struct SpecialTokens {
  std::optional<std::int32_t> begin_of_text, end_of_text, unknown, separator, padding, classifier, mask;
};

struct TokenizerPipeline {
  std::string origin;                     ///< the file, for messages
  std::uint64_t fingerprint = 0;          ///< of which text becomes which token; not of the special tokens' roles
  AddedTokens spelled, spelled_normally;  ///< looked for before and after the text is normalised
  Normalizers normalizers;
  PreTokenizers pre_tokenizers;
  std::unique_ptr<const SubwordModel> model;
  std::unique_ptr<const TokenSpelling> spelling;
  SpecialTokens specials;
  TextTemplate around;  ///< which encoders leave to their callers
  bool cuts_before_spaces =
      false;  ///< the words do: the pre-tokenizers, or what they leave whole is never joined there

  /// Where any text can be cut and its parts encoded one by one.
  [[nodiscard]] TextCuts cuts(SpecialTokenPolicy special_tokens) const;
};

/// Text to tokens, one thread at a time.
class PipelineEncoder {
 public:
  /// The pipeline outlives the encoder.
  PipelineEncoder(const TokenizerPipeline& pipeline, SpecialTokenPolicy specials);

  /// Appends the tokens of any bytes. What belongs to no UTF-8 character stands apart from what is around it, each
  /// byte by itself. `begins`: the text is the beginning of a document, or else what follows where it was cut.
  void encode(std::string_view text, bool begins, std::vector<std::int32_t>& to);

 private:
  void encode_part(std::string_view text, TextPosition place, std::vector<std::int32_t>& to);
  void encode_characters(std::string_view text, TextPosition place, std::vector<std::int32_t>& to);
  void encode_words(std::string_view text, TextPosition place, std::vector<std::int32_t>& to);

  const TokenizerPipeline& pipeline_;
  SpecialTokenPolicy specials_;
  std::unique_ptr<SubwordModel::Encoder> model_;
  std::string normal_;
  CutText words_;
};

}  // namespace ranvier::models

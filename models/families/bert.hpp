// BERT (Devlin et al. 2018) and RoBERTa (Liu et al. 2019) for masked language modelling or text classification:
// learned positions, post-LayerNorm, bidirectional attention, GELU (erf form), biases everywhere. The head is matrix,
// GELU, norm and the tied word table, or for classes matrix, tanh and matrix of each sample's first position.
#pragma once

#include "models/families/family.hpp"

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::models {

struct BertOptions {
  int layers = 12;
  int hidden = 768;           ///< C
  int heads = 12;             ///< H
  int inner = 3072;           ///< F, inner width of the MLP
  int vocab_size = 30522;     ///< V; stored rows are a multiple of 64, the extra ones are never predicted
  int sequence_length = 512;  ///< T
  int positions = 0;          ///< positions with parameters; those after the first T stay unchanged. 0: T
  int types = 2;              ///< token types: rows of a table; only the first is used
  bool roberta = false;       ///< RoBERTa's names and first position
  int padding_token = 0;      ///< RoBERTa's first position is row padding_token + 1 of the table
  float norm_epsilon = 1e-12f;
  float initializer_range = 0.02f;  ///< standard deviation of initial matrices
  float dropout = 0;                ///< dropout rate of embeddings, attention weights and residual branches
  int tile = 1;                     ///< like GptOptions::tile; also divides inner
  int classes = 0;                  ///< number of classes; 0: masked language modelling
  int targets = 0;                  ///< maximum targets per sample, for which logits are computed; 0: all positions
  Precision precision;
  AttentionKernels attention = AttentionKernels::own;  ///< on a GPU
  bool fast_attention_backward = false;                ///< AttentionShape::fast_backward

  bool operator==(const BertOptions&) const = default;
  [[nodiscard]] bool classifies() const noexcept { return classes > 0; }
  [[nodiscard]] int first_position() const noexcept { return roberta ? padding_token + 1 : 0; }
  /// Rows of the position table.
  [[nodiscard]] int position_rows() const noexcept {
    return first_position() + (positions > 0 ? positions : sequence_length);
  }

  // The family; see ModelFamily.
  static std::span<const SizeField<BertOptions>> sizes();
  /// "bert", "roberta" with the user's sizes; "bert-base", "bert-large", "roberta-base", "roberta-large", and Table 1
  /// of MiCS: "bert-10b", "bert-15b", "bert-20b", "bert-50b" (with 64 heads, because MiCS' 40 do not divide the
  /// channels), "roberta-20b".
  static std::span<const NamedSizes<BertOptions>> named();
  [[nodiscard]] std::string_view family() const { return roberta ? "roberta" : "bert"; }
  [[nodiscard]] Task task() const { return classifies() ? Task::text_classes : Task::masked_tokens; }
  [[nodiscard]] std::optional<std::string> problem(const SizeNames& names) const;
  void derive(bool heads_given, bool ffn_size_given);
  [[nodiscard]] std::string computation() const;
  [[nodiscard]] std::optional<AdapterModules> adapters() const;
  static constexpr std::array<std::string_view, 2> model_types{"bert", "roberta"};
  static FamilyConfig<BertOptions> read(const ConfigFile& config);
  [[nodiscard]] std::string config_json(const std::string& like) const;
  [[nodiscard]] LanguageModel language_model() const;
};

/// One embedding, `layers` blocks, one head. Throws ErrorCode::usage for invalid sizes.
///
/// All tokens have type 0. Targets are no_target except for masked tokens (text/masked_source.hpp). If the maximum
/// number of targets is set, the head computes only those. A classifier has one target per sample.
///
/// Parameters have the names and layouts of Hugging Face checkpoints; linear weights are [out, in]. BERT's units:
/// "bert.embeddings.word_embeddings" (shared by embedding and head), "bert.embeddings", "bert.encoder.layer.0" …,
/// "cls.predictions"; RoBERTa's: "roberta.…" and "lm_head". A classifier's head is "classifier".
///
/// Tiles (see make_gpt()) split the word table and the blocks' matrices: "bert.embeddings.word_embeddings.0" …,
/// "bert.encoder.layer.0.attention.self.qkv.0" …, "bert.encoder.layer.0.mlp.0" … and so on.
[[nodiscard]] Architecture make_bert(const BertOptions& options, const Tuning& tuning = {});

/// Class names by number ('id2label'); unnamed classes get transformers' names. Throws ErrorCode::data, naming file
/// and key, for invalid values.
[[nodiscard]] std::vector<std::string> read_labels(const ConfigFile& config);
/// The same config with these names.
[[nodiscard]] std::string with_labels(const std::string& config, std::span<const std::string> labels);

}  // namespace ranvier::models

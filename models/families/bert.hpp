// BERT (Devlin et al. 2018) and RoBERTa (Liu et al. 2019) for masked language modelling or text classification:
// learned positions, post-LayerNorm, bidirectional attention, GELU (erf form), biases everywhere. The head is matrix,
// GELU, norm and the tied word table, or for classes matrix, tanh and matrix of each sample's first position.
#pragma once

#include "models/core/architecture.hpp"
#include "models/core/tuning.hpp"
#include "models/ops/attention.hpp"

#include <optional>
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

  [[nodiscard]] bool classifies() const noexcept { return classes > 0; }
  [[nodiscard]] int first_position() const noexcept { return roberta ? padding_token + 1 : 0; }
  /// Rows of the position table.
  [[nodiscard]] int position_rows() const noexcept {
    return first_position() + (positions > 0 ? positions : sequence_length);
  }
};

/// Families with the user's sizes ("bert", "roberta"), "bert-base", "bert-large", "roberta-base", "roberta-large",
/// and Table 1 of MiCS: "bert-10b", "bert-15b", "bert-20b", "bert-50b" (with 64 heads, because MiCS' 40 do not divide
/// the channels), "roberta-20b".
struct NamedBert {
  std::string_view name;
  bool is_preset;
  BertOptions sizes;
};
[[nodiscard]] const std::vector<NamedBert>& named_berts();

/// One embedding, `layers` blocks, one head. Throws ErrorCode::usage for invalid sizes (bert_sizes.hpp).
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

}  // namespace ranvier::models

// BERT (Devlin et al. 2018) and RoBERTa (Liu et al. 2019) for masked language modelling, or to tell which class a text
// is of: learned positions, post-LayerNorm, attention that sees all of a sample, GELU (erf form), biases everywhere,
// and a head (product, GELU, norm) whose last product is with the words' table, or one (product, tanh, product) of
// each sample's first position.
#pragma once

#include "models/architecture.hpp"
#include "models/ops/attention.hpp"
#include "models/tuning.hpp"

#include <optional>
#include <string_view>
#include <vector>

namespace ranvier::models {

struct BertOptions {
  int layers = 12;
  int hidden = 768;           ///< C
  int heads = 12;             ///< H
  int inner = 3072;           ///< F, of the MLP
  int vocab_size = 30522;     ///< V; stored rows are a multiple of 64, the extra ones are never predicted
  int sequence_length = 512;  ///< T
  int positions = 0;          ///< with parameters; those after the first T keep their values. 0: T
  int types = 2;              ///< of tokens: rows of a table whose first one is used
  bool roberta = false;       ///< names, and where positions begin
  int padding_token = 0;      ///< RoBERTa's positions begin with row padding_token + 1 of their table
  float norm_epsilon = 1e-12f;
  float initializer_range = 0.02f;  ///< standard deviation of initial matrices
  float dropout = 0;                ///< of embeddings, attention weights and residual branches
  int tile = 1;                     ///< as GptOptions::tile, and divides inner as well
  int classes = 0;                  ///< that texts are of; 0: it fills masks
  int targets = 0;                  ///< of a sample at most: logits are computed of so many positions; 0: of all
  Precision precision;
  AttentionKernels attention = AttentionKernels::own;  ///< on a GPU
  bool fast_attention_backward = false;                ///< AttentionShape::fast_backward

  [[nodiscard]] bool classifies() const noexcept { return classes > 0; }
  [[nodiscard]] int first_position() const noexcept { return roberta ? padding_token + 1 : 0; }
  /// Rows of their table.
  [[nodiscard]] int position_rows() const noexcept {
    return first_position() + (positions > 0 ? positions : sequence_length);
  }
};

/// Families with sizes of one's own ("bert", "roberta"), "bert-base", "bert-large", "roberta-base", "roberta-large",
/// and Table 1 of MiCS: "bert-10b", "bert-15b", "bert-20b", "bert-50b" (whose heads are 64 here: its 40 do not divide
/// its channels), "roberta-20b".
struct NamedBert {
  std::string_view name;
  bool is_preset;
  BertOptions sizes;
};
[[nodiscard]] const std::vector<NamedBert>& named_berts();

/// One embedding, `layers` blocks, one head. Throws ErrorCode::usage for sizes that make no model (bert_sizes.hpp).
///
/// Samples are all of token type 0. Targets are no_target but where a token is to be found (text/masked_source.hpp):
/// the head computes those positions alone, where it is told how many a sample has at most. With classes a target is
/// a sample's (text/labelled_source.hpp).
///
/// Parameter names and layouts are those of the Hugging Face checkpoints; linear weights are [out, in]. Units of
/// BERT: "bert.embeddings.word_embeddings" (shared by embedding and head), "bert.embeddings", "bert.encoder.layer.0"
/// …, "cls.predictions"; of RoBERTa "roberta.…" and "lm_head". With classes the head's unit is "classifier" of
/// either, with BERT's pooler.
///
/// With tiles (as of GPT-2, gpt.hpp) the blocks' matrices are in units of their own: "bert.encoder.layer.0" (norms
/// and biases), "bert.encoder.layer.0.attention.self.qkv.0" … (rows of the three matrices, one after another),
/// "bert.encoder.layer.0.attention.output.dense.0" … (rows), "bert.encoder.layer.0.mlp.0" … (rows of the first
/// matrix, and the columns of the second that go with them), "bert.embeddings.word_embeddings.0" … (rows). What
/// embedding and head have beside the words' table stays whole.
[[nodiscard]] Architecture make_bert(const BertOptions& options, const Tuning& tuning = {});

}  // namespace ranvier::models

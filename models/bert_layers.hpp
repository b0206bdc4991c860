// The embedding and the blocks that BERT is made of, and what all of its layers are told alike. See bert.hpp for the
// whole.
#pragma once

#include "models/bert.hpp"
#include "models/modules/norm.hpp"
#include "models/modules/token_table.hpp"

#include <memory>
#include <string>

namespace ranvier::models {

/// Tokens (int32 [B, T]) to activations [B, T, C]: norm of the sum of a row per token, one per position, and that of
/// type 0. Units: the words' table, "bert.embeddings".
[[nodiscard]] std::unique_ptr<Layer> make_bert_embedding(const BertOptions& options, const Tuning& tuning = {});

/// One transformer block: [B, T, C] to [B, T, C]. Unit "bert.encoder.layer.<index>".
[[nodiscard]] std::unique_ptr<Layer> make_bert_block(const BertOptions& options, int index,
                                                     const Tuning& tuning = {});

/// What names of the encoder's tensors begin with.
[[nodiscard]] inline std::string bert_prefix(const BertOptions& options) {
  return options.roberta ? "roberta." : "bert.";
}

/// The table that embedding and head share.
struct BertTokenTable : TokenTable {
  explicit BertTokenTable(const BertOptions& options);
};

/// Of all matrices and tables.
[[nodiscard]] inline Initializer bert_initializer(const BertOptions& options) {
  return {Initializer::Kind::normal, options.initializer_range};
}

/// Of all layers' rows.
[[nodiscard]] inline NormOptions bert_norm(const BertOptions& options) {
  return {.kind = NormOptions::Kind::layer,
          .channels = static_cast<std::size_t>(options.hidden),
          .epsilon = options.norm_epsilon,
          .precision = options.precision};
}

}  // namespace ranvier::models

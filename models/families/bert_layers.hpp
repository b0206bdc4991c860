// BERT's embedding and blocks, and the options common to all of its layers. See bert.hpp for the model.
#pragma once

#include "models/families/bert.hpp"
#include "models/modules/norm.hpp"
#include "models/modules/token_table.hpp"

#include <memory>
#include <string>

namespace ranvier::models {

/// Tokens (int32 [B, T]) to activations [B, T, C]: norm of the sum of token, position and type rows. Units: word
/// table, "bert.embeddings".
[[nodiscard]] std::unique_ptr<Layer> make_bert_embedding(const BertOptions& options, const Tuning& tuning = {});

/// One transformer block: [B, T, C] to [B, T, C]. Unit "bert.encoder.layer.<index>".
[[nodiscard]] std::unique_ptr<Layer> make_bert_block(const BertOptions& options, int index,
                                                     const Tuning& tuning = {});

/// Prefix of the encoder's tensor names.
[[nodiscard]] inline std::string bert_prefix(const BertOptions& options) {
  return options.roberta ? "roberta." : "bert.";
}

/// Table shared by embedding and head.
struct BertTokenTable : TokenTable {
  explicit BertTokenTable(const BertOptions& options);
};

/// Initializer of all matrices and tables.
[[nodiscard]] inline Initializer bert_initializer(const BertOptions& options) {
  return {Initializer::Kind::normal, options.initializer_range};
}

/// Norm of all layers.
[[nodiscard]] inline NormOptions bert_norm(const BertOptions& options) {
  return {.kind = NormOptions::Kind::layer,
          .channels = static_cast<std::size_t>(options.hidden),
          .epsilon = options.norm_epsilon,
          .precision = options.precision};
}

}  // namespace ranvier::models

// A language model as data: embedding, transformer blocks, and a head that predicts tokens or classes. Training builds
// layers of it, and a decoder the same blocks with a cache (decoder_model() of families/model.hpp). Pure; any thread.
#pragma once

#include "models/core/architecture.hpp"
#include "models/modules/classification_head.hpp"
#include "models/modules/token_table.hpp"
#include "models/modules/transformer_block.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>

namespace ranvier::models {

/// First layer: maps tokens (int32 [B, T]) to activations [B, T, C]. Sums a row of the token table and, if given, rows
/// of tables of positions and token types; a norm may follow. Units: the token table, then one with all other
/// parameters.
struct TokenEmbeddingOptions {
  TokenTable table;
  std::string unit = {};                        ///< name of the unit without the token table
  std::optional<ParameterSpec> positions = {};  ///< a row per position
  std::size_t first_position = 0;               ///< row of a sample's first position; rows before it are unused
  std::optional<ParameterSpec> types = {};      ///< a row per token type; all tokens have the first one
  std::string norm_name = {};                   ///< name of the sum's norm; empty: none
  NormShape norm = {};
  float dropout = 0;  ///< dropout rate of the output
};
[[nodiscard]] std::unique_ptr<Layer> make_token_embedding(const TokenEmbeddingOptions& options,
                                                          UnitBuilder builder);

/// Last layer: final norm, logits, cross entropy against targets (int32 [B, T]). Masked language models add a linear
/// map with GELU before the norm, and a bias of the logits. If few positions have a target, only their logits are
/// computed. Units: the table's, then one with all other parameters.
struct LanguageHeadOptions {
  TokenTable table;
  std::string norm_name;  ///< name of the norm's parameters
  NormShape norm;
  std::string unit;  ///< name of the unit without the table; empty: the norm's name
  /// C inputs and C outputs, before GELU (erf form) and the norm; never tiled.
  std::optional<MlpOptions::Matrix> transform;
  std::string bias;  ///< name of the logits' bias; empty: none
  int targets = 0;   ///< largest number of targets per sample, whose logits are computed; 0: all positions
};
[[nodiscard]] std::unique_ptr<Layer> make_language_head(const LanguageHeadOptions& options, UnitBuilder builder);

struct LanguageModel {
  std::string name;   ///< "llama 2 × 384, 6 heads", in messages
  int positions = 1;  ///< T
  Precision precision;
  TokenEmbeddingOptions embedding;
  int blocks = 1;
  /// Options of a block by its number; tiles are units of `builder`.
  std::function<TransformerBlockOptions(int index, UnitBuilder& builder)> block;
  std::variant<LanguageHeadOptions, ClassificationHeadOptions> head;
};

/// Layers: one embedding, the blocks, one head.
[[nodiscard]] Architecture make_language_model(const LanguageModel& model, const Tuning& tuning = {});

}  // namespace ranvier::models

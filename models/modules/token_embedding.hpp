// First layer of a language model: maps tokens (int32 [B, T]) to activations [B, T, C]. Sums a row of the token table
// and, if given, rows of tables of positions and token types; a norm may follow. Units: the token table, then one with
// all other parameters.
#pragma once

#include "models/modules/norm.hpp"
#include "models/modules/token_table.hpp"

#include <memory>
#include <optional>
#include <string>

namespace ranvier::models {

struct TokenEmbeddingOptions {
  TokenTable table;
  std::string unit = {};                        ///< name of the unit without the token table
  std::optional<ParameterSpec> positions = {};  ///< a row per position
  std::size_t first_position = 0;               ///< row of a sample's first position; rows before it are unused
  std::optional<ParameterSpec> types = {};      ///< a row per token type; all tokens have the first one
  std::string norm_name = {};                   ///< name of the sum's norm; empty: none
  NormShape norm = {};
  float dropout = 0;               ///< dropout rate of the output
  std::uint32_t dropout_site = 0;  ///< site number for make_dropout
};

[[nodiscard]] std::unique_ptr<Layer> make_token_embedding(const TokenEmbeddingOptions& options,
                                                          UnitBuilder builder);

}  // namespace ranvier::models

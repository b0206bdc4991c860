// First layer of a language model: maps tokens (int32 [B, T]) to activations [B, T, C]. Sums a row of the token table
// and, if given, a row of the position table. Units: token table, position table.
#pragma once

#include "models/core/tuning.hpp"
#include "models/modules/token_table.hpp"

#include <memory>
#include <optional>

namespace ranvier::models {

struct TokenEmbeddingOptions {
  TokenTable table;
  std::optional<UnitSpec> positions;  ///< unit with one parameter, a row per position
  float dropout = 0;                  ///< dropout rate of the sum
  std::uint32_t dropout_site = 0;     ///< site number for make_dropout
  Precision precision;
};

[[nodiscard]] std::unique_ptr<Layer> make_token_embedding(const TokenEmbeddingOptions& options,
                                                          const Tuning& tuning = {});

}  // namespace ranvier::models

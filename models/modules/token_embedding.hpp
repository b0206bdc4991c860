// The first layer of a language model: tokens (int32 [B, T]) to activations [B, T, C], rows of a table by token, plus
// those of another by position where there is one. Units: the table's, then that of positions.
#pragma once

#include "models/modules/token_table.hpp"
#include "models/tuning.hpp"

#include <memory>
#include <optional>

namespace ranvier::models {

struct TokenEmbeddingOptions {
  TokenTable table;
  std::optional<UnitSpec> positions;  ///< its one parameter has a row for each
  float dropout = 0;                  ///< of the sum
  std::uint32_t dropout_site = 0;     ///< for make_dropout
  Precision precision;
};

[[nodiscard]] std::unique_ptr<Layer> make_token_embedding(const TokenEmbeddingOptions& options,
                                                          const Tuning& tuning = {});

}  // namespace ranvier::models

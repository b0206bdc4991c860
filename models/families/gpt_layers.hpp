// GPT-2's three kinds of layers. See gpt.hpp for the model.
#pragma once

#include "models/core/layer.hpp"
#include "models/families/gpt.hpp"
#include "models/modules/norm.hpp"
#include "models/modules/token_table.hpp"
#include "models/modules/transformer_block.hpp"

#include <memory>

namespace ranvier::models {

/// Tokens (int32 [B, T]) to activations [B, T, C]. Units "wte" or its tiles, "wpe".
[[nodiscard]] std::unique_ptr<Layer> make_gpt_embedding(const GptOptions& options, const Tuning& tuning = {});

/// One transformer block: [B, T, C] to [B, T, C]. Unit "h.<index>", units of tiles, and separate units for frozen
/// parameters.
[[nodiscard]] std::unique_ptr<Layer> make_gpt_block(const GptOptions& options, int index,
                                                    const Tuning& tuning = {});

/// Options of a block, shared with decoders.
[[nodiscard]] TransformerBlockOptions gpt_block_options(const GptOptions& options, int index, UnitBuilder& builder);

/// Final norm, logits and cross entropy against targets (int32 [B, T]). Units "wte" or its tiles, "ln_f".
[[nodiscard]] std::unique_ptr<Layer> make_gpt_head(const GptOptions& options, const Tuning& tuning = {});

/// Table shared by embedding and head.
struct GptTokenTable : TokenTable {
  explicit GptTokenTable(const GptOptions& options);
};

/// Norm of blocks and head.
[[nodiscard]] inline NormOptions gpt_norm(const GptOptions& options) {
  return {.kind = NormOptions::Kind::layer,
          .channels = static_cast<std::size_t>(options.hidden),
          .precision = options.precision};
}

}  // namespace ranvier::models

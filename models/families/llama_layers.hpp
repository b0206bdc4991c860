// LLaMA's blocks, and the options common to all of its layers. See llama.hpp for the model.
#pragma once

#include "models/families/llama.hpp"
#include "models/modules/norm.hpp"
#include "models/modules/transformer_block.hpp"

#include <memory>

namespace ranvier::models {

/// One transformer block: [B, T, C] to [B, T, C]. Unit "model.layers.<index>", and another for frozen parameters.
[[nodiscard]] std::unique_ptr<Layer> make_llama_block(const LlamaOptions& options, int index,
                                                      const Tuning& tuning = {});

/// Options of a block, shared with decoders.
[[nodiscard]] TransformerBlockOptions llama_block_options(const LlamaOptions& options, int index,
                                                          UnitBuilder& builder);

/// Initializer of all matrices and tables.
[[nodiscard]] inline Initializer llama_initializer(const LlamaOptions& options) {
  return {Initializer::Kind::normal, options.initializer_range};
}

/// Norm of blocks and head.
[[nodiscard]] inline NormOptions llama_norm(const LlamaOptions& options) {
  return {.kind = NormOptions::Kind::rms,
          .channels = static_cast<std::size_t>(options.hidden),
          .epsilon = options.norm_epsilon,
          .precision = options.precision};
}

}  // namespace ranvier::models

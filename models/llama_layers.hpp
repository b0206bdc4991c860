// The blocks that LLaMA is made of, and what all of its layers are told alike. See llama.hpp for the whole.
#pragma once

#include "models/llama.hpp"
#include "models/modules/norm.hpp"
#include "models/modules/pre_norm_block.hpp"

#include <memory>

namespace ranvier::models {

/// One transformer block: [B, T, C] to [B, T, C]. Unit "model.layers.<index>", and another for what of it is frozen.
[[nodiscard]] std::unique_ptr<Layer> make_llama_block(const LlamaOptions& options, int index,
                                                      const Tuning& tuning = {});

/// What it is made of, by which decoders have it too.
[[nodiscard]] PreNormBlockOptions llama_block_options(const LlamaOptions& options, int index, UnitBuilder& builder);

/// Of all matrices and tables.
[[nodiscard]] inline Initializer llama_initializer(const LlamaOptions& options) {
  return {Initializer::Kind::normal, options.initializer_range};
}

/// Of a block's rows, and of the last block's.
[[nodiscard]] inline NormOptions llama_norm(const LlamaOptions& options) {
  return {.kind = NormOptions::Kind::rms,
          .channels = static_cast<std::size_t>(options.hidden),
          .epsilon = options.norm_epsilon,
          .precision = options.precision};
}

}  // namespace ranvier::models

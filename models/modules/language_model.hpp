// A language model as data: embedding, transformer blocks, and a head that predicts tokens or classes. Training builds
// layers of it, and a decoder the same blocks with a cache (decoder_model() of families/model.hpp). Pure; any thread.
#pragma once

#include "models/core/architecture.hpp"
#include "models/modules/classification_head.hpp"
#include "models/modules/language_head.hpp"
#include "models/modules/token_embedding.hpp"
#include "models/modules/transformer_block.hpp"

#include <functional>
#include <string>
#include <variant>

namespace ranvier::models {

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

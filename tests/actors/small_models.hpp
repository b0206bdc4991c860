// Like small_gpt() in simulated_job.hpp, but of the other families.
#pragma once

#include "models/core/lora.hpp"
#include "models/families/bert.hpp"
#include "models/families/llama.hpp"
#include "models/families/resnet.hpp"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ranvier::tests {

/// Heads share keys; nothing that only some models of the family have.
inline models::LlamaOptions small_llama(const models::Precision& precision = {}) {
  models::LlamaOptions options;
  options.layers = 3;
  options.hidden = 16;
  options.heads = 4;
  options.key_heads = 2;
  options.inner = 24;
  options.vocab_size = 37;
  options.sequence_length = 8;
  options.precision = precision;
  return options;
}

/// RoBERTa has no dropout here, and losses of all positions.
inline models::BertOptions small_bert(bool roberta = false, const models::Precision& precision = {}) {
  return {.layers = 3,
          .hidden = 16,
          .heads = 2,
          .inner = 24,
          .vocab_size = 37,
          .sequence_length = 8,
          .roberta = roberta,
          .padding_token = roberta ? 1 : 0,
          .dropout = roberta ? 0.0f : 0.1f,
          .targets = roberta ? 0 : 2,
          .precision = precision};
}

inline constexpr models::ResnetOptions small_resnet{
    .blocks = {1, 1, 1, 1}, .channels = 4, .width = 1, .image_size = 8, .classes = 3};

/// Adapters of rank 2.
inline models::Tuning adapters(std::vector<std::string> targets, float dropout = 0) {
  models::Tuning tuning;
  tuning.lora = std::make_shared<const models::LoraOptions>(
      models::LoraOptions{.rank = 2, .dropout = dropout, .targets = std::move(targets)});
  return tuning;
}

}  // namespace ranvier::tests

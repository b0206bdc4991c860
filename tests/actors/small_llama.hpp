// Like small_gpt() in simulated_job.hpp, but of the LLaMA family: heads that share keys, and nothing that only some of
// its models have.
#pragma once

#include "models/families/llama.hpp"

namespace ranvier::tests {

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

}  // namespace ranvier::tests

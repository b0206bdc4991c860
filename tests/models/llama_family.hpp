// Small models of LLaMA's family, for tests: one of each kind.
#pragma once

#include "models/families/llama.hpp"

#include <string>
#include <utility>
#include <vector>

namespace ranvier::models {

/// LLaMA itself: as many heads of keys as of queries.
inline LlamaOptions small_llama(Precision precision = {}) {
  LlamaOptions options;
  options.layers = 2;
  options.hidden = 12;
  options.heads = 3;
  options.inner = 20;
  options.vocab_size = 13;
  options.sequence_length = 7;
  options.rope_base = 100;
  options.precision = precision;
  return options;
}

/// With the special features of each related family.
inline std::vector<std::pair<std::string, LlamaOptions>> family(Precision precision = {}) {
  const LlamaOptions plain = small_llama(precision);
  std::vector<std::pair<std::string, LlamaOptions>> family{{"LLaMA", plain}};

  LlamaOptions& llama_3 = family.emplace_back("LLaMA 3.1", plain).second;
  llama_3.heads = 4;
  llama_3.key_heads = 2;
  llama_3.head_size = 6;
  llama_3.rope_scaling = RopeScaling{RopeScaling::Kind::llama3, 4, 1, 4, 32};

  LlamaOptions& mistral = family.emplace_back("Mistral", plain).second;
  mistral.heads = 2;
  mistral.key_heads = 1;
  mistral.window = 3;
  mistral.rope_scaling = RopeScaling{RopeScaling::Kind::linear, 2};

  LlamaOptions& qwen_2 = family.emplace_back("Qwen2", plain).second;
  qwen_2.heads = 6;
  qwen_2.key_heads = 2;
  qwen_2.qkv_bias = true;
  qwen_2.tied = true;

  // Sizes without gaps between tensors: one product for queries, keys and values.
  LlamaOptions& biased = family.emplace_back("LLaMA with attention_bias", plain).second;
  biased.hidden = 32;
  biased.heads = 2;
  biased.inner = 32;
  biased.qkv_bias = true;
  biased.out_bias = true;

  LlamaOptions& qwen_3 = family.emplace_back("Qwen3", plain).second;
  qwen_3.heads = 4;
  qwen_3.key_heads = 2;
  qwen_3.head_size = 4;
  qwen_3.qk_norm = true;
  qwen_3.norm_epsilon = 1e-6f;

  LlamaOptions& phi_3 = family.emplace_back("Phi-3", plain).second;
  phi_3.heads = 6;
  phi_3.key_heads = 2;
  phi_3.window = 3;
  phi_3.fused = true;
  return family;
}

}  // namespace ranvier::models

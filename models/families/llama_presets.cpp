#include "models/families/llama.hpp"

namespace ranvier::models {
namespace {

constexpr LlamaOptions own_llama{
    .layers = 6, .hidden = 384, .heads = 6, .inner = 1024, .vocab_size = 256, .sequence_length = 256};

/// LLaMA 1 and 2 (Touvron et al. 2023), from their papers' tables.
constexpr LlamaOptions first_llama(int layers, int hidden, int heads, int inner) {
  return {.layers = layers, .hidden = hidden, .heads = heads, .inner = inner, .norm_epsilon = 1e-6f};
}
constexpr LlamaOptions second_llama(int layers, int hidden, int heads, int key_heads, int inner) {
  return {.layers = layers,
          .hidden = hidden,
          .heads = heads,
          .key_heads = key_heads,
          .inner = inner,
          .sequence_length = 4096};
}
constexpr LlamaOptions third_llama(int layers, int hidden, int heads, int inner, bool tied = false) {
  return {.layers = layers,
          .hidden = hidden,
          .heads = heads,
          .key_heads = 8,
          .inner = inner,
          .vocab_size = 128256,
          .sequence_length = 8192,
          .rope_base = 500000,
          .tied = tied};
}
constexpr LlamaOptions with_scaling(LlamaOptions llama, double factor) {
  llama.rope_scaling = RopeScaling{.kind = RopeScaling::Kind::llama3, .factor = factor};
  return llama;
}
constexpr LlamaOptions second_qwen(int layers, int hidden, int heads, int key_heads, int inner, bool tied,
                                   int vocab_size = 151936) {
  return {.layers = layers,
          .hidden = hidden,
          .heads = heads,
          .key_heads = key_heads,
          .inner = inner,
          .vocab_size = vocab_size,
          .sequence_length = 4096,
          .norm_epsilon = 1e-6f,
          .rope_base = 1e6,
          .qkv_bias = true,
          .tied = tied};
}
constexpr LlamaOptions third_qwen(int layers, int hidden, int heads, int inner, bool tied) {
  return {.layers = layers,
          .hidden = hidden,
          .heads = heads,
          .key_heads = 8,
          .head_size = 128,
          .inner = inner,
          .vocab_size = 151936,
          .sequence_length = 4096,
          .norm_epsilon = 1e-6f,
          .rope_base = 1e6,
          .qk_norm = true,
          .tied = tied};
}

constexpr LlamaOptions own(bool qkv_bias, bool qk_norm, int window = 0) {
  LlamaOptions llama = own_llama;
  llama.qkv_bias = qkv_bias;
  llama.qk_norm = qk_norm;
  llama.window = window;
  return llama;
}

constexpr LlamaOptions mistral{.layers = 32,
                               .hidden = 4096,
                               .heads = 32,
                               .key_heads = 8,
                               .inner = 14336,
                               .sequence_length = 8192,
                               .window = 4096};

}  // namespace

const std::vector<NamedLlama>& named_llamas() {
  static const std::vector<NamedLlama> all{
      {"llama", false, own_llama},
      {"mistral", false, own(false, false, 128)},
      {"qwen2", false, own(true, false)},
      {"qwen3", false, own(false, true)},
      {"llama-7b", true, first_llama(32, 4096, 32, 11008)},
      {"llama-13b", true, first_llama(40, 5120, 40, 13824)},
      {"llama-30b", true, first_llama(60, 6656, 52, 17920)},
      {"llama-65b", true, first_llama(80, 8192, 64, 22016)},
      {"llama2-7b", true, second_llama(32, 4096, 32, 0, 11008)},
      {"llama2-13b", true, second_llama(40, 5120, 40, 0, 13824)},
      {"llama2-70b", true, second_llama(80, 8192, 64, 8, 28672)},
      {"llama3-8b", true, third_llama(32, 4096, 32, 14336)},
      {"llama3-70b", true, third_llama(80, 8192, 64, 28672)},
      {"llama3.1-8b", true, with_scaling(third_llama(32, 4096, 32, 14336), 8)},
      {"llama3.2-1b", true, with_scaling(third_llama(16, 2048, 32, 8192, true), 32)},
      {"llama3.2-3b", true, with_scaling(third_llama(28, 3072, 24, 8192, true), 32)},
      {"mistral-7b", true, mistral},
      {"qwen2-0.5b", true, second_qwen(24, 896, 14, 2, 4864, true)},
      {"qwen2-1.5b", true, second_qwen(28, 1536, 12, 2, 8960, true)},
      {"qwen2-7b", true, second_qwen(28, 3584, 28, 4, 18944, false, 152064)},
      {"qwen3-0.6b", true, third_qwen(28, 1024, 16, 3072, true)},
      {"qwen3-1.7b", true, third_qwen(28, 2048, 16, 6144, true)},
      {"qwen3-4b", true, third_qwen(36, 2560, 32, 9728, true)},
      {"qwen3-8b", true, third_qwen(36, 4096, 32, 12288, false)},
  };
  return all;
}

}  // namespace ranvier::models

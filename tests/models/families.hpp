// Small models of each family, for tests: one of each kind.
#pragma once

#include "models/core/lora.hpp"
#include "models/families/model.hpp"
#include "models/ops/cross_entropy.hpp"
#include "tests/models/gradient_check.hpp"
#include "tests/models/model_run.hpp"
#include "tests/test.hpp"

namespace ranvier::models {

template <typename Options>
using Family = std::vector<std::pair<std::string, Options>>;

/// The same model with its matrices in tiles, and enough words for several tiles of the tables.
template <typename Options>
Options in_tiles(Options options, int tile) {
  options.tile = tile;
  options.vocab_size = 150;
  return options;
}

inline Tuning with_adapters(const LoraOptions& options) {
  return {.train = {}, .freeze = {}, .lora = std::make_shared<const LoraOptions>(options)};
}

inline GptOptions small_gpt(float dropout = 0, Precision precision = {}) {
  return {.layers = 2,
          .hidden = 12,
          .heads = 3,
          .vocab_size = 13,
          .sequence_length = 7,
          .dropout = dropout,
          .precision = precision};
}

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
inline Family<LlamaOptions> family(Precision precision = {}) {
  const LlamaOptions plain = small_llama(precision);
  Family<LlamaOptions> family{{"LLaMA", plain}};

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

inline BertOptions small_bert(Precision precision = {}) {
  return {.layers = 2,
          .hidden = 12,
          .heads = 3,
          .inner = 20,
          .vocab_size = 13,
          .sequence_length = 7,
          .precision = precision};
}

inline Family<BertOptions> bert_family(Precision precision = {}) {
  const BertOptions plain = small_bert(precision);
  Family<BertOptions> family{{"BERT", plain}};

  // Sizes without gaps between tensors: one product for queries, keys and values. Logits of as many positions as have a
  // target in made_up_samples(), or one more.
  BertOptions& wide = family.emplace_back("RoBERTa", plain).second;
  wide.hidden = 32;
  wide.heads = 2;
  wide.inner = 64;
  wide.types = 1;
  wide.roberta = true;
  wide.positions = 9;
  wide.padding_token = 1;
  wide.norm_epsilon = 1e-5f;
  wide.targets = 5;

  BertOptions& dropping = family.emplace_back("BERT with dropout", plain).second;
  dropping.dropout = 0.3f;
  dropping.types = 3;
  return family;
}

/// The family with heads for text classification.
inline Family<BertOptions> classifying_family(Precision precision = {}) {
  Family<BertOptions> family = bert_family(precision);
  family.push_back({"RoBERTa with dropout", family[1].second});
  family.back().second.dropout = 0.2f;
  for (auto& [name, options] : family) {
    options.classes = 5;
    options.targets = 0;
  }
  return family;
}

/// Like samples of other families, but only some tokens have targets, or each sample has a class.
inline ReferenceSamples made_up_samples(const BertOptions& options, std::int64_t first, int count) {
  ReferenceSamples samples = made_up_samples<BertOptions>(options, first, count);
  const auto T = static_cast<std::size_t>(options.sequence_length);
  if (options.classifies()) {
    for (std::size_t b = 0; b < static_cast<std::size_t>(count); ++b)
      samples.targets[b] = samples.targets[b * T] % options.classes;
    samples.targets.resize(static_cast<std::size_t>(count));
    return samples;
  }
  for (std::size_t i = 0; i < samples.targets.size(); ++i)
    if ((static_cast<std::size_t>(first) * T + i) % 3 == 2) samples.targets[i] = no_target;
  return samples;
}

/// With and without a pool, with odd sizes, with several consecutive blocks.
inline Family<ResnetOptions> resnet_family(Precision precision = {}) {
  const ResnetOptions plain{
      .blocks = {1, 2, 1, 1}, .channels = 2, .width = 2, .image_size = 10, .classes = 5, .precision = precision};
  Family<ResnetOptions> family{{"small images", plain}};
  ResnetOptions& pooled = family.emplace_back("images with a pool", plain).second;
  pooled.blocks = {2, 1, 1, 1};
  pooled.width = 1;
  pooled.image_size = ResnetOptions::small_image + 2;
  return family;
}

/// Noise, as bytes.
inline ReferenceSamples made_up_samples(const ResnetOptions& options, std::int64_t first, int count) {
  ReferenceSamples samples{.samples = count, .key = {.seed = 77, .step = 5, .first_sample = first}};
  const std::size_t bytes = 3 * static_cast<std::size_t>(count * options.image_size * options.image_size);
  const auto key = runtime::philox_key(4321, runtime::RandomPurpose::test);
  for (std::uint32_t i = 0; i < (bytes + 3) / 4; ++i) {
    const std::uint32_t word = runtime::philox(key, {i, 0, 0, 0})[0];
    samples.tokens.push_back(static_cast<std::int32_t>(word & 0x7fffffff));
  }
  for (int b = 0; b < count; ++b)
    samples.targets.push_back(
        static_cast<std::int32_t>(runtime::philox(key, {0, 1, static_cast<std::uint32_t>(b), 0})[0] %
                                  static_cast<std::uint32_t>(options.classes)));
  return samples;
}

/// Gradients that must be zero: keys' biases move all scores of a query equally. Types other than the first, RoBERTa's
/// rows before its first position, and positions after a sample's last one are unused.
inline bool has_no_slope(const BertOptions& options, const std::string& tensor, std::size_t element) {
  const auto C = static_cast<std::size_t>(options.hidden);
  if (is_rounding(tensor)) return true;
  if (tensor.ends_with("token_type_embeddings.weight")) return element >= C;
  const auto first = static_cast<std::size_t>(options.first_position());
  const std::size_t last = first + static_cast<std::size_t>(options.sequence_length);
  return tensor.ends_with("position_embeddings.weight") && (element < first * C || element >= last * C);
}

}  // namespace ranvier::models

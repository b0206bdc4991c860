#include "models/generation/llama_decoder.hpp"

#include "models/ops/attention.hpp"
#include "models/ops/cached_attention.hpp"
#include "models/ops/embedding.hpp"
#include "models/ops/rms_norm.hpp"
#include "models/ops/rotary.hpp"
#include "models/ops/swiglu.hpp"
#include "runtime/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>

namespace ranvier::models {
namespace {

AttentionShape prompt_shape(const LlamaOptions& options, std::size_t positions) {
  return {.samples = 1,
          .positions = static_cast<int>(positions),
          .heads = options.heads,
          .channels = options.stored_head_size(),
          .key_heads = options.key_heads,
          .window = options.window};
}

CachedAttentionShape cache_shape(const LlamaOptions& options, std::size_t queries, int past,
                                 const std::int32_t* past_place) {
  return {.queries = static_cast<int>(queries),
          .past = past,
          .capacity = options.sequence_length,
          .heads = options.heads,
          .channels = options.stored_head_size(),
          .past_place = past_place,
          .key_heads = options.key_heads,
          .window = options.window};
}

}  // namespace

/// Matrices that have the same input follow each other: one product.
struct LlamaDecoder::Block {
  const std::byte *norm_1, *norm_2, *query_norm, *key_norm;
  const std::byte *qkv, *qkv_bias, *out, *out_bias, *gate_up, *down;
};

LlamaDecoder::LlamaDecoder(runtime::Device& device, const LlamaOptions& options, const UnitSource& weights)
    : Decoder(device, options.precision.compute),
      options_(options),
      channels_(static_cast<std::size_t>(options.hidden)),
      head_(static_cast<std::size_t>(options.stored_head_size())),
      queries_(static_cast<std::size_t>(options.heads) * head_),
      key_channels_(static_cast<std::size_t>(options.stored_key_heads()) * head_),
      inner_(static_cast<std::size_t>(options.inner)) {
  options_.tile = 1;
  options_.precision.gradient = dtype_;
  load(weights);
  frequencies_ = rotary_frequencies(options.stored_head_size(), options.rope_base, options.rope_scaling);
  const auto T = static_cast<std::size_t>(options.sequence_length);
  plan({.context = options.sequence_length,
        .vocabulary = static_cast<std::size_t>(options.vocab_size),
        .channels = channels_,
        .blocks = blocks_.size(),
        .key_channels = key_channels_,
        .normal = std::max({channels_, queries_, inner_}),
        .wide = std::max(queries_ + 2 * key_channels_, 2 * inner_),
        .heads = static_cast<std::size_t>(options.heads),
        .scratch_bytes =
            std::max(attention_workspace_bytes(prompt_shape(options_, T), dtype_, device.threads()),
                     cached_attention_workspace_bytes(cache_shape(options_, 1, 0, nullptr), device.threads()))});
}

LlamaDecoder::~LlamaDecoder() = default;

void LlamaDecoder::load(const UnitSource& weights) {
  const Architecture llama = make_llama(options_);  // which checks the sizes
  // Where each tensor goes; those of one array follow each other without gaps.
  MemoryLayout layout;
  std::unordered_map<std::string, std::size_t> places;
  const auto add = [&](std::initializer_list<std::pair<std::string, std::size_t>> tensors) {
    std::size_t elements = 0;
    for (const auto& tensor : tensors) elements += tensor.second;
    std::size_t offset = layout.add(elements, size_of(dtype_));
    for (const auto& [name, count] : tensors) {
      places.emplace(name, offset);
      offset += count * size_of(dtype_);
    }
  };
  const std::size_t C = channels_, V = static_cast<std::size_t>(options_.vocab_size);
  const auto name_of = [](int block, const char* tensor) {
    return fmt::format("model.layers.{}.{}", block, tensor);
  };
  add({{"model.embed_tokens.weight", V * C}});
  if (!options_.tied) add({{"lm_head.weight", V * C}});
  add({{"model.norm.weight", C}});
  for (int i = 0; i < options_.layers; ++i) {
    const auto name = [&](const char* tensor) { return name_of(i, tensor); };
    add({{name("input_layernorm.weight"), C}});
    add({{name("post_attention_layernorm.weight"), C}});
    add({{name("self_attn.q_proj.weight"), queries_ * C},
         {name("self_attn.k_proj.weight"), key_channels_ * C},
         {name("self_attn.v_proj.weight"), key_channels_ * C}});
    add({{name("self_attn.o_proj.weight"), C * queries_}});
    add({{name("mlp.gate_proj.weight"), inner_ * C}, {name("mlp.up_proj.weight"), inner_ * C}});
    add({{name("mlp.down_proj.weight"), C * inner_}});
    if (options_.qkv_bias) {
      add({{name("self_attn.q_proj.bias"), queries_},
           {name("self_attn.k_proj.bias"), key_channels_},
           {name("self_attn.v_proj.bias"), key_channels_}});
    }
    if (options_.out_bias) add({{name("self_attn.o_proj.bias"), C}});
    if (options_.qk_norm) {
      add({{name("self_attn.q_norm.weight"), head_}});
      add({{name("self_attn.k_norm.weight"), head_}});
    }
  }

  weights_ = stream_->device().allocate(layout.bytes(), runtime::MemorySpace::device);
  const auto place_of = [&](const std::string& tensor) -> std::byte* {
    const auto place = places.find(tensor);
    return place == places.end() ? nullptr : weights_.data() + place->second;
  };
  for (const UnitSpec& unit : llama.units()) {
    for (std::size_t p = 0; p < unit.parameters.size(); ++p) {
      const ParameterSpec& parameter = unit.parameters[p];
      std::byte* const place = place_of(parameter.name);
      expect(place != nullptr, "a decoder has no place for {}", parameter.name);
      load_parameter(unit, p, false, place, weights);
      if (options_.tied || unit.name != "model.embed_tokens") read_bytes_ += parameter.elements() * size_of(dtype_);
    }
  }
  words_ = place_of("model.embed_tokens.weight");
  logit_table_ = options_.tied ? words_ : place_of("lm_head.weight");
  final_weight_ = place_of("model.norm.weight");
  for (int i = 0; i < options_.layers; ++i) {
    const auto at = [&](const char* tensor) { return place_of(name_of(i, tensor)); };
    blocks_.push_back({.norm_1 = at("input_layernorm.weight"),
                       .norm_2 = at("post_attention_layernorm.weight"),
                       .query_norm = at("self_attn.q_norm.weight"),
                       .key_norm = at("self_attn.k_norm.weight"),
                       .qkv = at("self_attn.q_proj.weight"),
                       .qkv_bias = at("self_attn.q_proj.bias"),
                       .out = at("self_attn.o_proj.weight"),
                       .out_bias = at("self_attn.o_proj.bias"),
                       .gate_up = at("mlp.gate_proj.weight"),
                       .down = at("mlp.down_proj.weight")});
  }
}

void LlamaDecoder::embed(const std::int32_t* tokens, std::size_t rows, int) {
  embedding_tokens_forward(*stream_, {1, rows, channels_, vocabulary()}, dtype_, x(), tokens, words_, 0,
                           vocabulary());
}

void LlamaDecoder::compute_block(std::size_t index, const Tokens& tokens) {
  const Block& block = blocks_[index];
  const std::size_t rows = tokens.rows, C = channels_;
  const CachedAttentionShape shape = cache_shape(options_, rows, tokens.past, tokens.past_place);
  norm(block.norm_1, nullptr, rows, index == 0);
  product(wide(), normal(), block.qkv, block.qkv_bias, rows, queries_ + 2 * key_channels_, C);
  turn_heads(block, tokens);
  append_to_cache(*stream_, shape, dtype_, keys(index), values(index), wide());
  if (tokens.past == 0 && rows > 1) {
    attention_forward(*stream_, prompt_shape(options_, rows), dtype_, normal(), logsumexp(), wide(), Dropout{},
                      scratch());
  } else {
    cached_attention(*stream_, shape, dtype_, normal(), keys(index), values(index), wide(), scratch());
  }
  product(branch(), normal(), block.out, block.out_bias, rows, C, queries_);
  norm(block.norm_2, nullptr, rows);
  product(wide(), normal(), block.gate_up, nullptr, rows, 2 * inner_, C);
  swiglu_forward(*stream_, dtype_, normal(), wide(), rows, inner_);
  product(branch(), normal(), block.down, nullptr, rows, C, inner_);
}

void LlamaDecoder::turn_heads(const Block& block, const Tokens& tokens) {
  const std::size_t row = queries_ + 2 * key_channels_;
  if (options_.qk_norm) {
    const auto in_place = [&](std::byte* heads, const std::byte* weight, int count) {
      rms_norm_forward(*stream_,
                       {tokens.rows, head_, options_.norm_epsilon, static_cast<std::size_t>(count), row, row},
                       dtype_, {.y = heads, .rstd = logsumexp(), .x = heads, .weight = weight});
    };
    in_place(wide(), block.query_norm, options_.heads);
    in_place(wide() + queries_ * size_of(dtype_), block.key_norm, options_.stored_key_heads());
  }
  rotary(*stream_, {1, static_cast<int>(tokens.rows), options_.heads + options_.stored_key_heads(), row}, dtype_,
         wide(), frequencies_, Rotation::forward, tokens.past_place, tokens.past);
}

void LlamaDecoder::normalise(std::byte* y, const std::byte* weight, const std::byte*, const std::byte* x,
                             std::size_t rows, const std::byte* branch, std::byte* sum) {
  rms_norm_forward(*stream_, {rows, channels_, options_.norm_epsilon}, dtype_,
                   {.y = y, .rstd = moments(0), .x = x, .weight = weight, .branch = branch, .sum = sum});
}

}  // namespace ranvier::models

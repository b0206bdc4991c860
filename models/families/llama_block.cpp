#include "models/families/llama_layers.hpp"

#include <fmt/format.h>

#include <utility>

namespace ranvier::models {
namespace {

SelfAttentionOptions attention_options(const LlamaOptions& options) {
  return {.shape = {.heads = options.heads,
                    .channels = options.stored_head_size(),
                    .kernels = options.attention,
                    .fast_backward = options.fast_attention_backward,
                    .key_heads = options.key_heads,
                    .window = options.window},
          .rotary = rotary_frequencies(options.stored_head_size(), options.rope_base, options.rope_scaling),
          .head_norms = options.qk_norm,
          .norm_epsilon = options.norm_epsilon,
          .precision = options.precision};
}

LinearOptions qkv_options(const LlamaOptions& options, const std::string& name, UnitBuilder& builder) {
  const auto D = static_cast<std::size_t>(options.stored_head_size());
  const std::size_t queries = static_cast<std::size_t>(options.heads) * D;
  const std::size_t keys = static_cast<std::size_t>(options.stored_key_heads()) * D;
  return {.tensors = {{name + ".q_proj", queries}, {name + ".k_proj", keys}, {name + ".v_proj", keys}},
          .in = static_cast<std::size_t>(options.hidden),
          .bias = options.qkv_bias,
          .initializer = llama_initializer(options),
          .precision = options.precision,
          .cut = {builder.add_tiles(name + ".qkv_proj", static_cast<std::size_t>(options.tile))}};
}

LinearOptions out_options(const LlamaOptions& options, const std::string& name, UnitBuilder& builder) {
  return {.tensors = {{name + ".o_proj", static_cast<std::size_t>(options.hidden)}},
          .in = static_cast<std::size_t>(options.heads) * static_cast<std::size_t>(options.stored_head_size()),
          .bias = options.out_bias,
          .initializer = llama_initializer(options),
          .precision = options.precision,
          .cut = {builder.add_tiles(name + ".o_proj", static_cast<std::size_t>(options.tile))}};
}

}  // namespace

TransformerBlockOptions llama_block_options(const LlamaOptions& options, int index, UnitBuilder& builder) {
  const std::string name = fmt::format("model.layers.{}", index);
  const Initializer initial = llama_initializer(options);
  return {.name = name,
          .index = index,
          .norm_1 = name + ".input_layernorm",
          .norm_2 = name + ".post_attention_layernorm",
          .norm = llama_norm(options),
          .qkv = qkv_options(options, name + ".self_attn", builder),
          .out = out_options(options, name + ".self_attn", builder),
          .attention_name = name + ".self_attn",
          .attention = attention_options(options),
          .mlp = {.gate = MlpOptions::Matrix{name + ".mlp.gate_proj", initial},
                  .up = {name + ".mlp.up_proj", initial},
                  .down = {name + ".mlp.down_proj", initial},
                  .channels = static_cast<std::size_t>(options.hidden),
                  .inner = static_cast<std::size_t>(options.inner),
                  .precision = options.precision,
                  .tiles = builder.add_tiles(name + ".mlp", static_cast<std::size_t>(options.tile))}};
}

std::unique_ptr<Layer> make_llama_block(const LlamaOptions& options, int index, const Tuning& tuning) {
  UnitBuilder builder(tuning);
  const TransformerBlockOptions block = llama_block_options(options, index, builder);
  return make_transformer_block(block, std::move(builder));
}

}  // namespace ranvier::models

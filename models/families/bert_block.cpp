#include "models/families/bert_layers.hpp"
#include "models/modules/transformer_block.hpp"

#include <fmt/format.h>

#include <utility>

namespace ranvier::models {
namespace {

SelfAttentionOptions attention_options(const BertOptions& options) {
  return {.shape = {.heads = options.heads,
                    .channels = options.hidden / options.heads,
                    .kernels = options.attention,
                    .fast_backward = options.fast_attention_backward,
                    .causal = false},
          .precision = options.precision};
}

/// Linear maps of C channels, stored together. `tiles`: name of the tiles' units.
LinearOptions linear_options(const BertOptions& options, std::initializer_list<std::string> names,
                             const std::string& tiles, UnitBuilder& builder) {
  LinearOptions linear{.tensors = {},
                       .in = static_cast<std::size_t>(options.hidden),
                       .bias = true,
                       .initializer = bert_initializer(options),
                       .precision = options.precision,
                       .cut = {builder.add_tiles(tiles, static_cast<std::size_t>(options.tile))}};
  for (const std::string& name : names) linear.tensors.push_back({name, linear.in});
  return linear;
}

}  // namespace

std::unique_ptr<Layer> make_bert_block(const BertOptions& options, int index, const Tuning& tuning) {
  UnitBuilder builder(tuning);
  const std::string name = fmt::format("{}encoder.layer.{}", bert_prefix(options), index);
  const std::string attention = name + ".attention.self", out = name + ".attention.output.dense";
  const Initializer initial = bert_initializer(options);
  const TransformerBlockOptions block{
      .name = name,
      .index = index,
      .post_norm = true,
      .norm_1 = name + ".attention.output.LayerNorm",
      .norm_2 = name + ".output.LayerNorm",
      .norm = bert_norm(options),
      .qkv = linear_options(options, {attention + ".query", attention + ".key", attention + ".value"},
                            attention + ".qkv", builder),
      .out = linear_options(options, {out}, out, builder),
      .attention_name = attention,
      .attention = attention_options(options),
      .mlp = {.up = {name + ".intermediate.dense", initial},
              .down = {name + ".output.dense", initial},
              .channels = static_cast<std::size_t>(options.hidden),
              .inner = static_cast<std::size_t>(options.inner),
              .bias = true,
              .precision = options.precision,
              .tiles = builder.add_tiles(name + ".mlp", static_cast<std::size_t>(options.tile))},
      .dropout = options.dropout};
  return make_transformer_block(block, std::move(builder));
}

}  // namespace ranvier::models

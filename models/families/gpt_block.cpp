#include "models/families/gpt_layers.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace ranvier::models {

TransformerBlockOptions gpt_block_options(const GptOptions& options, int index, UnitBuilder& builder) {
  const std::string name = fmt::format("h.{}", index);
  const auto C = static_cast<std::size_t>(options.hidden), tiles = static_cast<std::size_t>(options.tile);
  const Initializer normal{Initializer::Kind::normal, 0.02f};
  const Initializer residual{Initializer::Kind::normal,
                             0.02f / std::sqrt(2.0f * static_cast<float>(options.layers))};
  const auto linear = [&](const std::string& product, std::size_t outputs, const Initializer& initializer) {
    return LinearOptions{.tensors = {{product, outputs}},
                         .in = C,
                         .layout = LinearOptions::Layout::in_out,
                         .bias = true,
                         .initializer = initializer,
                         .precision = options.precision,
                         .cut = {builder.add_tiles(product, tiles)}};
  };
  return {.name = name,
          .index = index,
          .norm_1 = name + ".ln_1",
          .norm_2 = name + ".ln_2",
          .norm = gpt_norm(options),
          .qkv = linear(name + ".attn.c_attn", 3 * C, normal),
          .out = linear(name + ".attn.c_proj", C, residual),
          .attention_name = name + ".attn",
          .attention = {.shape = {.heads = options.heads,
                                  .channels = options.hidden / options.heads,
                                  .kernels = options.attention,
                                  .fast_backward = options.fast_attention_backward},
                        .precision = options.precision},
          .mlp = {.up = {name + ".mlp.c_fc", normal},
                  .down = {name + ".mlp.c_proj", residual},
                  .channels = C,
                  .inner = 4 * C,
                  .bias = true,
                  .layout = LinearOptions::Layout::in_out,
                  .gelu = GeluForm::tanh,
                  .precision = options.precision,
                  .tiles = builder.add_tiles(name + ".mlp", tiles)},
          .dropout = options.dropout};
}

std::unique_ptr<Layer> make_gpt_block(const GptOptions& options, int index, const Tuning& tuning) {
  UnitBuilder builder(tuning);
  const TransformerBlockOptions block = gpt_block_options(options, index, builder);
  return make_transformer_block(block, std::move(builder));
}

}  // namespace ranvier::models

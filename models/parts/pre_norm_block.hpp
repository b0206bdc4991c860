// The transformer block with a norm before each branch: middle = x + out(attention(qkv(norm(x)))), then
// middle + mlp(norm(middle)). The blocks of GPT-2 and of LLaMA's family are this, by options. Any thread.
//
//   UnitBuilder builder(tuning);
//   const PreNormBlockOptions block{…, .qkv = {…, .cut = {builder.add_tiles(name + ".qkv", tiles)}}, …};
//   std::unique_ptr<Layer> layer = make_pre_norm_block(block, std::move(builder));
#pragma once

#include "models/layer.hpp"
#include "models/parts/gated_mlp.hpp"
#include "models/parts/linear.hpp"
#include "models/parts/mlp.hpp"
#include "models/parts/norm.hpp"
#include "models/parts/self_attention.hpp"
#include "models/parts/unit_builder.hpp"

#include <memory>
#include <string>
#include <variant>

namespace ranvier::models {

struct PreNormBlockOptions {
  std::string name;            ///< of the layer, and of the unit of what is not in tiles
  int index = 0;               ///< among the model's blocks
  std::string norm_1, norm_2;  ///< names of the norms before attention and before the MLP
  NormOptions norm;            ///< of both
  LinearOptions qkv, out;
  std::string attention_name;  ///< what names of attention's own parameters begin with
  SelfAttentionOptions attention;
  std::variant<MlpOptions, GatedMlpOptions> mlp;
  float dropout = 0;  ///< of attention's weights and of both branches
};

/// [B, T, C] to [B, T, C]. Parameters come in the order of the options: norm_1, qkv, attention, out, norm_2, mlp. Those
/// of the three products are all whole or all in tiles of units of `builder`.
[[nodiscard]] std::unique_ptr<Layer> make_pre_norm_block(const PreNormBlockOptions& options, UnitBuilder builder);

}  // namespace ranvier::models

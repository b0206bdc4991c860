// The transformer block with a norm before each branch: middle = x + out(attention(qkv(norm(x)))), then
// middle + mlp(norm(middle)). The blocks of GPT-2 and of LLaMA's family are this, by options. Any thread.
//
//   UnitBuilder builder(tuning);
//   const PreNormBlockOptions block{…, .qkv = {…, .cut = {builder.add_tiles(name + ".qkv", tiles)}}, …};
//   std::unique_ptr<Layer> layer = make_pre_norm_block(block, std::move(builder));
#pragma once

#include "models/layer.hpp"
#include "models/modules/decoding.hpp"
#include "models/modules/gated_mlp.hpp"
#include "models/modules/linear.hpp"
#include "models/modules/mlp.hpp"
#include "models/modules/norm.hpp"
#include "models/modules/self_attention.hpp"
#include "models/modules/unit_builder.hpp"

#include <cstddef>
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

/// A layer that also reads text with a key-value cache. Then its weights are whole and stored [out, in].
class DecodingLayer : public Layer {
 public:
  /// Channels of the arrays below, and what else a call's memory follows from.
  struct DecodingSizes {
    std::size_t key_channels = 0;  ///< of all keys, and of all values, of a position
    std::size_t narrow = 0, wide = 0;
    std::size_t heads = 0;          ///< H
    std::size_t scratch_bytes = 0;  ///< for any text that the cache has room for
  };

  /// What layers hand each other: a residual stream x[N, C], and branch[N, C], which is still to be added to it.
  struct DecodingArrays {
    std::byte *x = nullptr, *branch = nullptr;
    std::byte* sum = nullptr;                      ///< [N, C]; changes places with x
    std::byte *narrow = nullptr, *wide = nullptr;  ///< what goes into products, and what comes out of them
    std::byte* scratch = nullptr;
    Norm::Arrays norm;          ///< in saved, of all norms of rows
    std::size_t logsumexp = 0;  ///< in saved, [H, N] float
  };

  [[nodiscard]] virtual DecodingSizes decoding_sizes(int capacity, int threads) const = 0;

  /// Of rows of one text. The first layer of a model (`first`) finds all in x, and every layer leaves its last
  /// branch to the next.
  virtual void decode(const LayerCall& call, const Decoding& text, DecodingArrays& at, bool first) const = 0;
};

/// [B, T, C] to [B, T, C]. Parameters come in the order of the options: norm_1, qkv, attention, out, norm_2, mlp. Those
/// of the three products are all whole or all in tiles of units of `builder`.
[[nodiscard]] std::unique_ptr<DecodingLayer> make_pre_norm_block(const PreNormBlockOptions& options,
                                                                 UnitBuilder builder);

}  // namespace ranvier::models

// Transformer block with a norm before or after each branch. Before (pre-norm): middle = x + out(attention(qkv(
// norm(x)))), then middle + mlp(norm(middle)). After (post-norm): middle = norm(x + out(attention(qkv(x)))), then
// norm(middle + mlp(middle)). All language models use it with different options. Any thread.
//
//   UnitBuilder builder(precision, tuning);
//   const TransformerBlockOptions block{…, .qkv = {…, .cut = {builder.add_tiles(name + ".qkv", tiles)}}, …};
//   std::unique_ptr<Layer> layer = make_transformer_block(block, std::move(builder));
#pragma once

#include "models/core/layer.hpp"
#include "models/modules/linear.hpp"
#include "models/modules/mlp.hpp"
#include "models/modules/norm.hpp"
#include "models/modules/self_attention.hpp"
#include "models/modules/unit_builder.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace ranvier::models {

/// Dropout in a block: attention weights, and the outputs of both branches before the residual addition.
enum class DropoutSite : std::uint32_t { attention, attention_branch, mlp_branch };

/// Site numbers for make_dropout, distinct within a model.
inline constexpr std::uint32_t embedding_dropout_site = 0;
[[nodiscard]] constexpr std::uint32_t dropout_site(int block, DropoutSite place) {
  return 1 + 3 * static_cast<std::uint32_t>(block) + static_cast<std::uint32_t>(place);
}

struct TransformerBlockOptions {
  std::string name;            ///< name of the layer, and of its unit without tiles
  int index = 0;               ///< number of the block in the model
  bool post_norm = false;      ///< norms after the branches, not before
  std::string norm_1, norm_2;  ///< names of the norms of attention and of the MLP
  NormShape norm;              ///< shape of both norms
  LinearOptions qkv, out;
  std::string attention_name;  ///< prefix of attention's own parameters
  SelfAttentionOptions attention;
  MlpOptions mlp;
  float dropout = 0;  ///< dropout rate of attention weights and both branches
};

/// A layer that also decodes with a key-value cache. Decoding needs norms before branches, and untiled weights stored
/// [out, in].
class DecodingLayer : public Layer {
 public:
  /// Sizes that determine the memory of a decoding call.
  struct DecodingSizes {
    std::size_t key_channels = 0;  ///< channels of all keys (and of all values) per position
    std::size_t narrow = 0, wide = 0;
    std::size_t heads = 0;          ///< H
    std::size_t scratch_bytes = 0;  ///< enough for any text that fits into the cache
  };

  /// Arrays passed from layer to layer: residual stream x[N, C], and branch[N, C], not yet added to x.
  struct DecodingArrays {
    std::byte *x = nullptr, *branch = nullptr;
    std::byte* sum = nullptr;                      ///< [N, C]; swapped with x
    std::byte *narrow = nullptr, *wide = nullptr;  ///< inputs and outputs of linear maps
    std::byte* scratch = nullptr;
    Norm::Arrays norm;          ///< in saved, shared by all norms of rows
    std::size_t logsumexp = 0;  ///< in saved, [H, N] float
  };

  [[nodiscard]] virtual DecodingSizes decoding_sizes(int capacity, int threads) const = 0;

  /// Decodes rows of one text. The `first` layer of a model reads x only. Each layer leaves its last branch for the
  /// next layer to add.
  virtual void decode(const LayerCall& call, const Decoding& text, DecodingArrays& at, bool first) const = 0;

 protected:
  explicit DecodingLayer(std::string name) : Layer(std::move(name)) {}
};

/// Maps [B, T, C] to [B, T, C]. Parameters come in the order norm_1, qkv, attention, out, norm_2, mlp; after branches,
/// norms follow out and mlp. Either all linear maps are tiled, with units of `builder`, or none.
[[nodiscard]] std::unique_ptr<DecodingLayer> make_transformer_block(const TransformerBlockOptions& options,
                                                                    UnitBuilder builder);

}  // namespace ranvier::models

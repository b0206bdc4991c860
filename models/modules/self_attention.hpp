// Attention without its linear maps: norms of heads of queries and keys, rotary positions, attention.
//
// Letters: B samples, T positions, N = B·T rows, H query heads, K key-value heads, D channels per head.
#pragma once

#include "models/modules/norm.hpp"
#include "models/ops/attention.hpp"
#include "models/ops/cached_attention.hpp"
#include "models/ops/rotary.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace ranvier::models {

struct RotaryOptions {
  double base = 10000;
  std::optional<RopeScaling> scaling;
};

struct SelfAttentionOptions {
  AttentionShape shape;                 ///< each call sets samples and positions
  std::optional<RotaryOptions> rotary;  ///< none: no rotary positions
  bool head_norms = false;              ///< RMSNorm of each head's queries and keys, before rotation
  float norm_epsilon = 1e-5f;
};

/// State of incremental decoding with a key-value cache. It comes with a LayerCall whose rows are consecutive new
/// tokens of one text.
struct Decoding {
  int past = 0;  ///< tokens already in the cache; unknown if past_place is given
  /// Device address of `past`, read when the work runs, so that the same work serves consecutive positions
  /// (runtime::Stream::repeat).
  const std::int32_t* past_place = nullptr;
  int capacity = 1;                              ///< T: capacity of the cache in positions
  std::byte *keys = nullptr, *values = nullptr;  ///< [K, T, D] each: the layer's cache
};

class SelfAttention {
 public:
  struct Arrays {
    std::size_t qkv;         ///< saved [N, (H + 2K)·D]: output of the linear map, then input of attention
    std::size_t logsumexp;   ///< saved [B, H, T]
    std::size_t out;         ///< saved [N, H·D]
    std::size_t before = 0;  ///< saved [N, (H + K)·D]: queries and keys before their norms, if there are norms
    Norm::Arrays query_norm, key_norm;
    std::size_t d_qkv;  ///< deferred [N, (H + 2K)·D]
  };

  /// Declares `name`.q_norm and `name`.k_norm, if heads have norms.
  SelfAttention(UnitBuilder& builder, std::size_t unit, const std::string& name,
                const SelfAttentionOptions& options);

  [[nodiscard]] Arrays plan(CallMemory& memory, const MicrobatchShape& shape) const;
  [[nodiscard]] std::size_t scratch_bytes(const MicrobatchShape& shape) const;

  /// Computes out from qkv.
  void forward(const LayerCall& call, const Arrays& at, std::byte* scratch, const Dropout& dropout = {}) const;
  /// Computes d_qkv, the gradient of the linear map's output, from d_out.
  void backward(const LayerCall& call, const Arrays& at, const std::byte* d_out, std::byte* scratch,
                const Dropout& dropout = {}) const;
  /// Decoding: out[N, H·D] from qkv[N, (H + 2K)·D]. The cache receives values, and keys after rotation. `logsumexp`:
  /// offset in saved, [H, N] float, scratch only.
  void decode(const LayerCall& call, const Decoding& text, std::byte* out, std::byte* qkv, std::size_t logsumexp,
              std::byte* scratch) const;
  /// Scratch of decode() for any text that fits into a cache of `capacity` positions.
  [[nodiscard]] std::size_t decode_scratch_bytes(int capacity, int threads) const;
  /// K·D: channels of a position's keys, and of its values.
  [[nodiscard]] std::size_t key_channels() const;
  [[nodiscard]] int heads() const { return options_.shape.heads; }
  /// FLOPs per sample of two T × T multiplications with H·D channels: forward once, backward twice, 2 FLOPs each.
  /// Masked pairs count, as is customary.
  [[nodiscard]] double flops_per_sample(int positions) const {
    return 12.0 * options_.shape.heads * options_.shape.channels * positions * positions;
  }

  /// For backward_weight.
  void store_gradients(const LayerCall& call, const Arrays& at) const;

 private:
  [[nodiscard]] AttentionShape shape_of(const MicrobatchShape& shape) const;
  [[nodiscard]] CachedAttentionShape cache_shape(int queries, const Decoding& text) const;
  [[nodiscard]] AttentionBounds bounds_of(const LayerCall& call) const;
  /// Positions as for rotary().
  void rotate(const LayerCall& call, std::byte* qkv, Rotation rotation, const std::int32_t* positions,
              int first_position = 0) const;
  /// Bytes of a row's query heads, and of its query and key heads.
  [[nodiscard]] std::size_t query_bytes() const;
  [[nodiscard]] std::size_t rotated_bytes() const;

  SelfAttentionOptions options_;
  runtime::DType dtype_;
  std::optional<RotaryFrequencies> rotary_;
  std::optional<Norm> query_norm_, key_norm_;
};

}  // namespace ranvier::models

// From queries, keys and values to what attention makes of them: norms of the heads of queries and keys, rotation by
// position, attention. The products before and after are Linear's.
//
// Letters: B samples, T positions, N = B·T rows, H heads, K heads of keys and values, D channels of a head.
#pragma once

#include "models/memory_layout.hpp"
#include "models/ops/attention.hpp"
#include "models/ops/cached_attention.hpp"
#include "models/ops/rotary.hpp"
#include "models/modules/decoding.hpp"
#include "models/modules/norm.hpp"

#include <optional>
#include <string>

namespace ranvier::models {

struct SelfAttentionOptions {
  AttentionShape shape;                     ///< samples and positions are each call's
  std::optional<RotaryFrequencies> rotary;  ///< none: nothing is rotated
  bool head_norms = false;                  ///< RMSNorm of each head's queries and keys, before they are rotated
  float norm_epsilon = 1e-5f;
  Precision precision;
};

class SelfAttention {
 public:
  struct Arrays {
    std::size_t qkv;         ///< saved [N, (H + 2K)·D]: the product's result, then what attention reads
    std::size_t logsumexp;   ///< saved [B, H, T]
    std::size_t out;         ///< saved [N, H·D]
    std::size_t before = 0;  ///< saved [N, (H + K)·D]: queries and keys before their norms, if they have any
    Norm::Arrays query_norm, key_norm;
    std::size_t d_qkv;  ///< deferred [N, (H + 2K)·D]
  };

  /// Declares `name`.q_norm and `name`.k_norm where there are such.
  SelfAttention(UnitBuilder& builder, std::size_t unit, const std::string& name,
                const SelfAttentionOptions& options);

  [[nodiscard]] Arrays plan(MemoryLayout& saved, MemoryLayout& deferred, const MicrobatchShape& shape) const;
  [[nodiscard]] std::size_t scratch_bytes(const MicrobatchShape& shape) const;

  /// From qkv to out.
  void forward(const LayerCall& call, const Arrays& at, std::byte* scratch, const Dropout& dropout = {}) const;
  /// d_qkv, the gradient of the product's result, from that of out.
  void backward(const LayerCall& call, const Arrays& at, const std::byte* d_out, std::byte* scratch,
                const Dropout& dropout = {}) const;
  /// Where text is read: out[N, H·D] from qkv[N, (H + 2K)·D], of which the cache gets keys as they are after rotation,
  /// and values. `logsumexp`: in saved, [H, N] float, for what nobody needs afterwards.
  void decode(const LayerCall& call, const Decoding& text, std::byte* out, std::byte* qkv, std::size_t logsumexp,
              std::byte* scratch) const;
  /// Its scratch, for any text that a cache of so many positions has room for.
  [[nodiscard]] std::size_t decode_scratch_bytes(int capacity, int threads) const;
  /// K·D, of a position's keys, and of its values.
  [[nodiscard]] std::size_t key_channels() const;
  [[nodiscard]] int heads() const { return options_.shape.heads; }
  /// Of a sample: two T × T products of H·D channels, forward once and backward twice, at 2 each (the part that masks
  /// spare is customarily counted).
  [[nodiscard]] double flops_per_sample(int positions) const {
    return 12.0 * options_.shape.heads * options_.shape.channels * positions * positions;
  }

  /// In backward_weight.
  void store_gradients(const LayerCall& call, const Arrays& at) const;

 private:
  [[nodiscard]] AttentionShape shape_of(const MicrobatchShape& shape) const;
  [[nodiscard]] CachedAttentionShape cache_shape(int queries, const Decoding& text) const;
  [[nodiscard]] AttentionBounds bounds_of(const LayerCall& call) const;
  void rotate(const LayerCall& call, std::byte* qkv, Rotation rotation) const;
  /// Bytes of all heads of queries in a row, and of queries and keys.
  [[nodiscard]] std::size_t query_bytes() const;
  [[nodiscard]] std::size_t rotated_bytes() const;

  SelfAttentionOptions options_;
  std::optional<Norm> query_norm_, key_norm_;
};

}  // namespace ranvier::models

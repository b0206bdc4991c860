// Causal self-attention of a few new positions to themselves and to all earlier ones, whose keys and values are cached.
// Used by decoders.
//
// Letters: Q new positions, P earlier ones, T capacity of the cache, H query heads, K key-value heads, D channels per
// head, C = H·D. A row of qkv has (H + 2K)·D channels, as in attention.hpp.
#pragma once

#include "models/ops/attention.hpp"

#include <cstddef>
#include <cstdint>

namespace ranvier::models {

/// `positions` are Q, of one sample.
struct CachedAttentionShape : AttentionShape {
  int past = 0;      ///< P; P + Q is at most T
  int capacity = 1;  ///< T
  /// Device address of P, read when the work runs, so that the same work serves consecutive positions
  /// (runtime::Stream::repeat). Null: `past` is used.
  const std::int32_t* past_place = nullptr;
};

/// Copies keys and values of qkv[Q, (H + 2K)·D] to positions P … P+Q-1 of keys[K, T, D] and values[K, T, D].
void append_to_cache(runtime::StreamView stream, const CachedAttentionShape& shape, runtime::DType dtype,
                     void* keys, void* values, const void* qkv);

/// Scratch of cached_attention, in bytes. Depends on T, not on Q or P.
[[nodiscard]] std::size_t cached_attention_workspace_bytes(const CachedAttentionShape& shape, int threads);

/// out[Q, C] = softmax(q kᵀ / √D, causal) v, with the queries of qkv[Q, (H + 2K)·D] and positions 0 … P+Q-1 of a cache
/// that already contains the new ones; with a window, only the last of these. The order of sums depends on the query's
/// position only.
void cached_attention(runtime::StreamView stream, const CachedAttentionShape& shape, runtime::DType dtype,
                      void* out, const void* keys, const void* values, const void* qkv, std::byte* workspace);

// GPU kernels, which need no workspace.
decltype(append_to_cache) append_to_cache_cuda;
decltype(cached_attention) cached_attention_cuda;

}  // namespace ranvier::models

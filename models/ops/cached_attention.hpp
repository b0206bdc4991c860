// Causal multi-head self-attention of a few new positions to themselves and to all earlier ones, whose keys and
// values were kept: what a decoder computes for one token after another.
//
// Letters: Q new positions, P earlier ones, T positions that the cache has room for, H heads, D channels of a head,
// C = H·D.
#pragma once

#include "runtime/dtype.hpp"
#include "runtime/stream.hpp"

#include <cstddef>
#include <cstdint>

namespace ranvier::models {

struct CachedAttentionShape {
  int queries = 1;   ///< Q
  int past = 0;      ///< P; P + Q is at most T
  int capacity = 1;  ///< T
  int heads = 1;     ///< H
  int channels = 1;  ///< D
  /// In the device's memory: P when the work runs, so that the same work serves one position after another
  /// (runtime::Stream::repeat). Null: `past` says it.
  const std::int32_t* past_place = nullptr;
};

/// Puts keys and values of qkv[Q, 3C] into positions P … P+Q-1 of keys[H, T, D] and of values[H, T, D].
void append_to_cache(runtime::StreamView stream, const CachedAttentionShape& shape, runtime::DType dtype,
                     void* keys, void* values, const void* qkv);

/// Scratch of cached_attention, in bytes. It grows with T alone, not with Q or P.
[[nodiscard]] std::size_t cached_attention_workspace_bytes(const CachedAttentionShape& shape, int threads);

/// out[Q, C] = softmax(q kᵀ / √D, causal) v, with the queries of qkv[Q, 3C] and positions 0 … P+Q-1 of a cache that
/// has the new ones already. The order of sums depends on the query's position alone.
void cached_attention(runtime::StreamView stream, const CachedAttentionShape& shape, runtime::DType dtype,
                      void* out, const void* keys, const void* values, const void* qkv, std::byte* workspace);

}  // namespace ranvier::models

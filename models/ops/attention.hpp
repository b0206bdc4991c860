// Causal multi-head self-attention in the manner of FlashAttention (Dao et al. 2022): blocks of queries
// against blocks of keys with a running softmax, so that no T × T matrix is ever stored.
//
// Letters: B samples, T positions, H heads, D channels of a head, C = H·D.
#pragma once

#include "models/ops/dropout.hpp"
#include "runtime/dtype.hpp"
#include "runtime/stream.hpp"

#include <cstddef>

namespace ranvier::models {

struct AttentionShape {
  int samples = 1;    ///< B
  int positions = 1;  ///< T
  int heads = 1;      ///< H
  int channels = 1;   ///< D
};

/// Scratch that either call needs, in bytes. Enough for every smaller B too.
[[nodiscard]] std::size_t attention_workspace_bytes(const AttentionShape& shape, runtime::DType dtype, int threads);

/// out[B, T, C] = softmax(q kᵀ / √D, causal) v with q, k, v = qkv[B, T, 3C] side by side, heads as slices of
/// D channels. logsumexp[B, H, T] (float, of the scaled scores) is what backward needs. Dropout, if any, acts
/// on the softmax's weights: element (h·T + i)·T + j of a sample.
void attention_forward(runtime::StreamView stream, const AttentionShape& shape, runtime::DType dtype, void* out,
                       float* logsumexp, const void* qkv, const Dropout& dropout, std::byte* workspace);

/// d_qkv[B, T, 3C] from d_out, and from qkv, out and logsumexp of the forward pass. Deterministic; the result
/// for one sample does not depend on the others.
void attention_backward(runtime::StreamView stream, const AttentionShape& shape, runtime::DType dtype, void* d_qkv,
                        const void* d_out, const void* qkv, const void* out, const float* logsumexp,
                        const Dropout& dropout, std::byte* workspace);

}  // namespace ranvier::models

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

/// Whose kernels compute on a GPU in half precision without dropout; attention_choice.hpp.
enum class AttentionKernels {
  own,
  measured,  ///< cuDNN's where they were measured to be faster
  cudnn,     ///< cuDNN's where there are any
};

enum class AttentionPass {
  forward,
  backward,
  fast_backward,  ///< the library's, which adds parts of sums as they come: its bits differ from run to run
};

struct AttentionShape {
  int samples = 1;    ///< B
  int positions = 1;  ///< T
  int heads = 1;      ///< H
  int channels = 1;   ///< D
  AttentionKernels kernels = AttentionKernels::own;
  bool fast_backward = false;  ///< where the library does the backward pass
};

/// Whether the library may compute it: bf16 or f16, D at most 128 and a multiple of 8, qkv of less than 2^31 elements,
/// and asked for.
[[nodiscard]] bool library_attention_suits(const AttentionShape& shape, runtime::DType dtype);

/// What of the workspace the library may use. Its deterministic backward pass keeps the gradients of all weights, T
/// × T of each head in half precision; its fast one keeps those of all queries, T × D in float. Where that were
/// more than 1 GiB, as many samples as fit are done at a time; where not even one does, our own kernels do that
/// pass.
[[nodiscard]] std::size_t library_attention_workspace_bytes(const AttentionShape& shape, runtime::DType dtype);

/// How many of the samples the library's backward pass can do at a time in so many bytes.
[[nodiscard]] int library_attention_samples(const AttentionShape& shape, runtime::DType dtype,
                                            std::size_t workspace_bytes);

/// Scratch that either call needs, in bytes. Enough for every smaller B too.
[[nodiscard]] std::size_t attention_workspace_bytes(const AttentionShape& shape, runtime::DType dtype, int threads);

/// out[B, T, C] = softmax(q kᵀ / √D, causal) v with q, k, v = qkv[B, T, 3C] side by side, heads as slices of
/// D channels. logsumexp[B, H, T] (float, natural, of the scaled scores, whoever computes it) is what backward needs.
/// Dropout, if any, acts on the softmax's weights: element (h·T + i)·T + j of a sample.
void attention_forward(runtime::StreamView stream, const AttentionShape& shape, runtime::DType dtype, void* out,
                       float* logsumexp, const void* qkv, const Dropout& dropout, std::byte* workspace);

/// d_qkv[B, T, 3C] from d_out, and from qkv, out and logsumexp of the forward pass. Deterministic but for a
/// library's fast_backward; the result for one sample does not depend on the others.
void attention_backward(runtime::StreamView stream, const AttentionShape& shape, runtime::DType dtype, void* d_qkv,
                        const void* d_out, const void* qkv, const void* out, const float* logsumexp,
                        const Dropout& dropout, std::byte* workspace);

}  // namespace ranvier::models

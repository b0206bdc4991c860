// Multi-head self-attention in the manner of FlashAttention (Dao et al. 2022): blocks of queries against blocks of
// keys with a running softmax, so that no T × T matrix is ever stored. Blocks of which nobody sees anything cost
// nothing.
//
// Letters: B samples, T positions, H heads of queries, K of keys and values (Ainslie et al. 2023: grouped-query
// attention), D channels of a head, C = H·D. A row of qkv has (H + 2K)·D channels: 3C where K = H.
#pragma once

#include "models/ops/backends.hpp"
#include "models/ops/dropout.hpp"
#include "runtime/dtype.hpp"
#include "runtime/stream.hpp"

#include <cstddef>
#include <cstdint>

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
  int key_heads = 0;           ///< K, a divisor of H: head h reads keys and values of head h·K / H. 0: as many as H
  bool causal = true;          ///< positions see themselves and earlier ones; false: all of their sample
  int window = 0;              ///< positions that one sees at most, itself the last of them; 0: all. Causal only

  [[nodiscard]] int stored_key_heads() const noexcept { return key_heads > 0 ? key_heads : heads; }
  /// Of a row of qkv: H queries, K keys and K values of D channels each.
  [[nodiscard]] std::size_t row_channels() const noexcept {
    return (static_cast<std::size_t>(heads) + 2 * static_cast<std::size_t>(stored_key_heads())) *
           static_cast<std::size_t>(channels);
  }
};

/// Documents and padding: position i of a sample sees keys first_key[i] … end_key[i]-1 of it, of those that the shape
/// lets it see. Both [B, T] in the device's memory, or null: no such bound. first_key[i] <= i < end_key[i] <= T, and
/// neither decreases along a sample: a CPU's kernels throw otherwise, a GPU's then leave out keys.
struct AttentionBounds {
  const std::int32_t* first_key = nullptr;
  const std::int32_t* end_key = nullptr;

  [[nodiscard]] bool any() const noexcept { return first_key != nullptr || end_key != nullptr; }
};

/// Whether the library may compute it: if asked for, in bf16 or f16, with D at most 128 and a multiple of 8, and qkv of
/// less than 2^31 elements. Causal or not, with windows and heads that share keys; never with bounds.
[[nodiscard]] bool library_attention_suits(const AttentionShape& shape, runtime::DType dtype);

/// Part of the workspace that the library may use: enough for the library_attention_slice() of 1 GiB. If not even one
/// head of keys fits, it is 4 KiB, and our own kernels do the backward pass.
///
/// For each head of queries and sample, the deterministic pass keeps the gradients of the weights, T × T in half
/// precision. The fast pass keeps two copies of the gradients of the queries, T × D in float. If heads share keys, both
/// keep gradients of keys and values for each head of queries, T × D in half precision.
[[nodiscard]] std::size_t library_attention_workspace_bytes(const AttentionShape& shape, runtime::DType dtype);

/// Part of attention that the library computes in one call: `samples` with all K heads of keys, or one sample with
/// `key_heads` of them; with the heads of queries that read these.
struct AttentionSlice {
  int samples = 0;
  int key_heads = 0;  ///< 0: not even one fits

  bool operator==(const AttentionSlice&) const = default;
};

/// Slices whose backward pass by the library needs at most `workspace_bytes`: as many samples as fit, or, if not even
/// one fits, heads of one sample in equal numbers.
[[nodiscard]] AttentionSlice library_attention_slice(const AttentionShape& shape, runtime::DType dtype,
                                                     std::size_t workspace_bytes);

/// Scratch that either call needs, in bytes. Enough for every smaller B too.
[[nodiscard]] std::size_t attention_workspace_bytes(const AttentionShape& shape, runtime::DType dtype, int threads);

/// out[B, T, C] = softmax(q kᵀ / √D, of the keys that a position sees) v with q, k, v = qkv[B, T, (H + 2K)·D] side
/// by side, heads as slices of D channels. logsumexp[B, H, T] (float, natural, of the scaled scores, whoever computes
/// it) is what backward needs.
/// Dropout, if any, acts on the softmax's weights: element (h·T + i)·T + j of a sample.
void attention_forward(runtime::StreamView stream, const AttentionShape& shape, runtime::DType dtype, void* out,
                       float* logsumexp, const void* qkv, const Dropout& dropout, std::byte* workspace,
                       const AttentionBounds& bounds = {});

/// d_qkv[B, T, (H + 2K)·D] from d_out, and from qkv, out and logsumexp of the forward pass. Deterministic but for a
/// library's fast_backward; the result for one sample does not depend on the others. The heads that share keys add
/// to their gradients in order.
void attention_backward(runtime::StreamView stream, const AttentionShape& shape, runtime::DType dtype, void* d_qkv,
                        const void* d_out, const void* qkv, const void* out, const float* logsumexp,
                        const Dropout& dropout, std::byte* workspace, const AttentionBounds& bounds = {});

// A GPU's kernels; a CPU's are in attention_cpu.hpp.
OnCuda<decltype(attention_forward)> attention_forward_cuda;
OnCuda<decltype(attention_backward)> attention_backward_cuda;
/// Of our own backward: δ[B, H, T] in float.
[[nodiscard]] std::size_t attention_cuda_workspace_bytes(const AttentionShape& shape);

}  // namespace ranvier::models

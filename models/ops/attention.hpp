// Multi-head self-attention as in FlashAttention (Dao et al. 2022): blocks of queries times blocks of keys with a
// running softmax, so that no T × T matrix is stored. Fully masked blocks are skipped.
//
// Letters: B samples, T positions, H query heads, K key-value heads (grouped-query attention, Ainslie et al. 2023), D
// channels per head, C = H·D. A row of qkv has (H + 2K)·D channels: 3C if K = H.
#pragma once

#include "models/ops/dropout.hpp"
#include "runtime/base/dtype.hpp"
#include "runtime/device/stream.hpp"

#include <cstddef>
#include <cstdint>

namespace ranvier::models {

/// Kernels for half precision without dropout on a GPU; see attention_choice.hpp.
enum class AttentionKernels {
  own,
  measured,  ///< cuDNN's if they were measured to be faster
  cudnn,     ///< cuDNN's for passes met by measure_attention(), if it has one
};

enum class AttentionPass {
  forward,
  backward,
  fast_backward,  ///< the library's with unordered sums: its bits differ from run to run
};

struct AttentionShape {
  int samples = 1;    ///< B
  int positions = 1;  ///< T
  int heads = 1;      ///< H
  int channels = 1;   ///< D
  AttentionKernels kernels = AttentionKernels::own;
  bool fast_backward = false;  ///< use it if the library computes the backward pass
  int key_heads = 0;           ///< K, a divisor of H: head h reads keys and values of head h·K / H. 0: K = H
  bool causal = true;          ///< positions attend to themselves and earlier ones; false: to the complete sample
  int window = 0;              ///< positions attended to, the current one included; 0: no window. Causal only

  [[nodiscard]] int stored_key_heads() const noexcept { return key_heads > 0 ? key_heads : heads; }
  /// Channels of a row of qkv: H queries, K keys and K values of D channels each.
  [[nodiscard]] std::size_t row_channels() const noexcept {
    return (static_cast<std::size_t>(heads) + 2 * static_cast<std::size_t>(stored_key_heads())) *
           static_cast<std::size_t>(channels);
  }
};

/// Documents and padding: position i of a sample attends to keys first_key[i] … end_key[i]-1 only, within the shape's
/// mask. Both are [B, T] in device memory, or null: no bound. first_key[i] <= i < end_key[i] <= T, and neither
/// decreases along a sample. Otherwise CPU kernels throw, and GPU kernels skip keys.
struct AttentionBounds {
  const std::int32_t* first_key = nullptr;
  const std::int32_t* end_key = nullptr;

  [[nodiscard]] bool any() const noexcept { return first_key != nullptr || end_key != nullptr; }
};

/// Whether the library supports the shape: `kernels` allows it, bf16 or f16, D at most 128 and a multiple of 8, qkv
/// with less than 2^31 elements. Any mask, window and number of key heads, but no AttentionBounds.
[[nodiscard]] bool library_attention_suits(const AttentionShape& shape, runtime::DType dtype);

/// Share of the workspace for the library: enough for the library_attention_slice() of 1 GiB. If not even one key head
/// fits, it is 4 KiB, and our own kernels compute the backward pass.
///
/// Per query head and sample, the deterministic pass stores the gradients of the attention weights, T × T in half
/// precision. The fast pass stores two copies of the query gradients, T × D in float. If heads share keys, both store
/// gradients of keys and values per query head, T × D in half precision.
[[nodiscard]] std::size_t library_attention_workspace_bytes(const AttentionShape& shape, runtime::DType dtype);

/// Part of attention that the library computes per call: `samples` with all K key heads, or one sample with `key_heads`
/// of them; always with the query heads that read these.
struct AttentionSlice {
  int samples = 0;
  int key_heads = 0;  ///< 0: not even one fits

  bool operator==(const AttentionSlice&) const = default;
};

/// Slice whose backward pass by the library needs at most `workspace_bytes`: as many samples as fit. If not even one
/// fits: one sample with equally many heads per slice.
[[nodiscard]] AttentionSlice library_attention_slice(const AttentionShape& shape, runtime::DType dtype,
                                                     std::size_t workspace_bytes);

/// Scratch of either pass, in bytes. Also enough for any smaller B.
[[nodiscard]] std::size_t attention_workspace_bytes(const AttentionShape& shape, runtime::DType dtype, int threads);

/// Arrays of both passes; d_out and d_qkv for a backward pass only.
struct AttentionArrays {
  const void* qkv = nullptr;  ///< [B, T, (H + 2K)·D]: q, k and v are adjacent columns, D channels per head
  // Written by forward, read by backward:
  void* out = nullptr;         ///< [B, T, C]
  float* logsumexp = nullptr;  ///< [B, H, T], natural, of the scaled scores, the same for all kernels

  const void* d_out = nullptr;     ///< [B, T, C]
  void* d_qkv = nullptr;           ///< [B, T, (H + 2K)·D]
  Dropout dropout = {};            ///< weight (i, j) is element (h·T + i)·T + j of a sample
  std::byte* workspace = nullptr;  ///< attention_workspace_bytes()
  AttentionBounds bounds = {};
};

/// out = softmax(q kᵀ / √D, over the visible keys) v. Stores logsumexp for the backward pass.
void attention_forward(runtime::StreamView stream, const AttentionShape& shape, runtime::DType dtype,
                       const AttentionArrays& arrays);

/// d_qkv from d_out, and from qkv, out and logsumexp of the forward pass. Deterministic, except the library's
/// fast_backward. A sample's result does not depend on other samples. Heads that share keys add to their gradients in
/// order.
void attention_backward(runtime::StreamView stream, const AttentionShape& shape, runtime::DType dtype,
                        const AttentionArrays& arrays);

// GPU kernels; CPU kernels are in attention_cpu.hpp.
decltype(attention_forward) attention_forward_cuda;
decltype(attention_backward) attention_backward_cuda;
/// Workspace of our own backward pass: δ[B, H, T] in float.
[[nodiscard]] std::size_t attention_cuda_workspace_bytes(const AttentionShape& shape);

}  // namespace ranvier::models

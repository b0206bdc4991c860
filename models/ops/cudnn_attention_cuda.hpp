// cuDNN's fused attention as Ranvier sees it: cudnn_attention_cuda.cpp is the only file that knows its headers
// (cudnn-frontend, which describes the operation as a graph), no_cudnn_attention_cuda.cpp stands in its place where the
// build found none. The library is opened at first use, so programs start without it.
//
// Loop thread only, under library_attention_cuda.cpp's lock.
#pragma once

#include "models/ops/attention.hpp"

#include <cstddef>
#include <memory>
#include <string>

namespace ranvier::models::cuda {

/// Whether this build has it; where it runs, the library may still be missing.
[[nodiscard]] bool built_with_cudnn();

/// Opens the library. Empty: it is there; otherwise what is missing, and a remedy.
[[nodiscard]] std::string cudnn_obstacle();

/// Of the library that was opened, such as 91900; 0 without one.
[[nodiscard]] std::size_t cudnn_version();

/// From now on the handle of the stream's GPU, which becomes the calling thread's current one, works on that
/// stream. Throws ErrorCode::device where the library cannot be used.
void bind_cudnn(runtime::StreamView stream);

/// The handle, if there is one, keeps no stream: for whoever ends a stream on which it worked.
void unbind_cudnn(runtime::StreamView stream) noexcept;

inline constexpr std::size_t cudnn_array_alignment = 16;  // that it asks of arrays

/// Heads in a row of the arrays that attention is part of. A row of queries, keys, values or their gradients has
/// (H + 2K)·D channels, a row of out or d_out H·D.
struct CudnnRows {
  int heads = 1;      ///< H
  int key_heads = 1;  ///< K
};

/// Arrays of either pass, each from its first head of the first sample on. Forward writes out and logsumexp, cuDNN's
/// stats: the natural logarithm of Σ exp of the scaled scores, in float, [B, H, T] of this attention's own heads.
struct CudnnAttentionArrays {
  const void *q = nullptr, *k = nullptr, *v = nullptr;
  void* out = nullptr;
  float* logsumexp = nullptr;
  const void* d_out = nullptr;
  void *d_q = nullptr, *d_k = nullptr, *d_v = nullptr;
  std::byte* workspace = nullptr;  ///< aligned to 256 bytes
};

/// One pass over arrays of one shape, compiled for one GPU.
class CudnnAttention {
 public:
  virtual ~CudnnAttention() = default;

  /// Queues it on `stream`, to which the handle is bound. Throws ErrorCode::device with the call and what the
  /// library says.
  virtual void run(runtime::StreamView stream, const CudnnAttentionArrays& arrays) = 0;
};

struct CudnnPlan {
  std::unique_ptr<CudnnAttention> attention;  ///< null: there is none, since
  std::string obstacle;                       ///< in cuDNN's words
};

/// A plan that needs no more than `workspace_bytes`, and is deterministic but for fast_backward. Takes a second or
/// two: a kernel is compiled. The handle is bound to `stream`. Throws ErrorCode::device where the library itself
/// cannot be used.
[[nodiscard]] CudnnPlan plan_cudnn_attention(runtime::StreamView stream, const AttentionShape& shape,
                                             const CudnnRows& rows, runtime::DType dtype, AttentionPass pass,
                                             std::size_t workspace_bytes);

}  // namespace ranvier::models::cuda

// cuDNN's fused attention. Only cudnn_attention_cuda.cpp includes cuDNN's headers (cudnn-frontend);
// no_cudnn_attention_cuda.cpp replaces it in builds without them. The library is opened at first use, so that programs
// start without it. Loop thread only, under the lock of library_attention_cuda.cpp.
#pragma once

#include "models/ops/attention.hpp"

#include <cstddef>
#include <memory>
#include <string>

namespace ranvier::models::cuda {

/// Whether the build includes cuDNN. The library may still be missing at run time.
[[nodiscard]] bool built_with_cudnn();

/// Opens the library. Returns an empty string, or the missing part and a remedy.
[[nodiscard]] std::string cudnn_obstacle();

/// Version of the opened library, such as 91900; 0 without one.
[[nodiscard]] std::size_t cudnn_version();

/// Binds the handle of the stream's GPU to the stream, and makes that GPU the calling thread's current one. Throws
/// ErrorCode::device if the library cannot be used.
void bind_cudnn(runtime::StreamView stream);

/// Unbinds the GPU's handle, if any, from its stream. Called before the stream is destroyed.
void unbind_cudnn(runtime::StreamView stream) noexcept;

inline constexpr std::size_t cudnn_array_alignment = 16;  // required of arrays

/// Heads per row of the complete arrays. A row of queries, keys, values or their gradients has (H + 2K)·D channels, a
/// row of out or d_out H·D.
struct CudnnRows {
  int heads = 1;      ///< H
  int key_heads = 1;  ///< K
};

/// Arrays of either pass, each starting at the slice's first head and sample. Forward writes out and logsumexp (cuDNN's
/// stats): the natural logarithm of Σ exp of the scaled scores, in float, [B, H, T] of the slice's heads.
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

  /// Queues the pass on `stream`, to which the handle is bound. Throws ErrorCode::device with the call and the
  /// library's message.
  virtual void run(runtime::StreamView stream, const CudnnAttentionArrays& arrays) = 0;
};

struct CudnnPlan {
  std::unique_ptr<CudnnAttention> attention;  ///< null: not supported, because of `obstacle`
  std::string obstacle;                       ///< cuDNN's message
};

/// Plans a pass with at most `workspace_bytes`; deterministic, except fast_backward. Compiles a kernel, which takes 1
/// to 2 s. The handle is bound to `stream`. Throws ErrorCode::device if the library cannot be used.
[[nodiscard]] CudnnPlan plan_cudnn_attention(runtime::StreamView stream, const AttentionShape& shape,
                                             const CudnnRows& rows, runtime::DType dtype, AttentionPass pass,
                                             std::size_t workspace_bytes);

}  // namespace ranvier::models::cuda

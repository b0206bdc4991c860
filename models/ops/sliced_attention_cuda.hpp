// cuDNN's attention, in slices that fit its workspace. Loop thread only, under library_attention_cuda.cpp's lock.
#pragma once

#include "models/ops/cudnn_attention_cuda.hpp"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ranvier::models::cuda {

/// Arrays of attention.hpp, for all samples and heads; d_out and d_qkv for a backward pass only.
struct LibraryAttentionArrays {
  const void* qkv = nullptr;
  void* out = nullptr;
  float* logsumexp = nullptr;
  const void* d_out = nullptr;
  void* d_qkv = nullptr;
  std::byte* workspace = nullptr;  ///< aligned to 256 bytes
};

/// One pass, one slice after another.
class SlicedAttention {
 public:
  struct Step {
    std::size_t plan = 0;
    int sample = 0, key_head = 0;  ///< first ones of the slice
  };

  SlicedAttention(const AttentionShape& shape, runtime::DType dtype,
                  std::vector<std::unique_ptr<CudnnAttention>> plans, std::vector<Step> steps)
      : shape_(shape), dtype_(dtype), plans_(std::move(plans)), steps_(std::move(steps)) {}

  /// Same as CudnnAttention::run().
  void run(runtime::StreamView stream, const LibraryAttentionArrays& arrays) const;

 private:
  AttentionShape shape_;
  runtime::DType dtype_;
  std::vector<std::unique_ptr<CudnnAttention>> plans_;
  std::vector<Step> steps_;
};

struct SlicedPlan {
  std::unique_ptr<SlicedAttention> attention;  ///< null: not supported, because of `obstacle`
  std::string obstacle;                        ///< cuDNN's message, or ours
};

/// Plans a pass as one slice, or, if `workspace_bytes` do not suffice for a backward pass, as slices
/// (library_attention_slice()) whose sizes differ by at most one. Samples and key heads are independent, so slices
/// change bits only if cuDNN chooses another kernel for another size. Throws like plan_cudnn_attention().
[[nodiscard]] SlicedPlan plan_sliced_attention(runtime::StreamView stream, const AttentionShape& shape,
                                               runtime::DType dtype, AttentionPass pass,
                                               std::size_t workspace_bytes);

}  // namespace ranvier::models::cuda

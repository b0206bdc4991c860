// cuDNN's attention, if requested and supported, in slices that fit its workspace. Loop thread only.
#pragma once

#include "models/ops/cudnn_attention_cuda.hpp"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ranvier::models::cuda {

/// Queues a pass over `arrays`, whose workspace has library_attention_workspace_bytes(). Returns false if our own
/// kernels must compute it: because of the shape, dropout, bounds, the choice, or a missing library. While choices are
/// measured (attention_choice.hpp), a new pass runs several times here and with `own`.
bool library_attention(runtime::StreamView stream, AttentionPass pass, const AttentionShape& shape,
                       runtime::DType dtype, const AttentionArrays& arrays, const std::function<void()>& own);

/// One pass, one slice after another, without dropout and bounds. Under the lock of the GPU's state.
class SlicedAttention {
 public:
  struct Step {
    std::size_t plan = 0;
    int sample = 0, key_head = 0;  ///< first ones of the slice
  };

  SlicedAttention(const AttentionShape& shape, runtime::DType dtype,
                  std::vector<std::unique_ptr<CudnnAttention>> plans, std::vector<Step> steps)
      : shape_(shape), dtype_(dtype), plans_(std::move(plans)), steps_(std::move(steps)) {}

  /// Same as CudnnAttention::run(). The workspace is aligned to 256 bytes.
  void run(runtime::StreamView stream, const AttentionArrays& arrays) const;

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

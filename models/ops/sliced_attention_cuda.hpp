// cuDNN's attention over as many samples at a time as its workspace has room for. Loop thread only, under
// library_attention_cuda.cpp's lock.
#pragma once

#include "models/ops/cudnn_attention_cuda.hpp"

namespace ranvier::models::cuda {

/// plan_cudnn_attention() for all samples at once, or where `workspace_bytes` do not suffice for that, for slices
/// of them whose sizes differ by one at most. A sample's result depends on no other, so slices change bits only
/// where cuDNN has another kernel for another number of samples.
[[nodiscard]] CudnnPlan plan_sliced_attention(runtime::StreamView stream, const AttentionShape& shape,
                                              runtime::DType dtype, AttentionPass pass,
                                              std::size_t workspace_bytes);

}  // namespace ranvier::models::cuda

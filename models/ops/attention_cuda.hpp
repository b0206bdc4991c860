// The GPU's kernels behind attention.hpp; arguments are checked there. They return at once. Loop thread only.
#pragma once

#include "models/ops/attention.hpp"

namespace ranvier::models {

/// Of our own backward: δ[B, H, T] in float.
[[nodiscard]] std::size_t attention_cuda_workspace_bytes(const AttentionShape& shape);

void attention_forward_cuda(runtime::StreamView stream, const AttentionShape& shape, runtime::DType dtype,
                            void* out, float* logsumexp, const void* qkv, const Dropout& dropout,
                            std::byte* workspace);
void attention_backward_cuda(runtime::StreamView stream, const AttentionShape& shape, runtime::DType dtype,
                             void* d_qkv, const void* d_out, const void* qkv, const void* out,
                             const float* logsumexp, const Dropout& dropout, std::byte* workspace);

}  // namespace ranvier::models

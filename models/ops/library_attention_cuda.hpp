// Attention by cuDNN, if requested and supported. Only attention_cuda.cu calls it. Loop thread only.
#pragma once

#include "models/ops/sliced_attention_cuda.hpp"

#include <functional>

namespace ranvier::models::cuda {

/// Queues a pass over `arrays`, whose workspace has library_attention_workspace_bytes(). Returns false if our own
/// kernels must compute it: because of the shape, the choice, or a missing library. While choices are measured
/// (attention_choice.hpp), a new pass runs several times here and with `own`.
bool library_attention(runtime::StreamView stream, AttentionPass pass, const AttentionShape& shape,
                       runtime::DType dtype, const Dropout& dropout, const LibraryAttentionArrays& arrays,
                       const std::function<void()>& own);

}  // namespace ranvier::models::cuda

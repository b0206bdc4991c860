// The GPU's kernels behind cached_attention.hpp; arguments are checked there. They return at once and need no
// workspace. Loop thread only.
#pragma once

#include "models/ops/cached_attention.hpp"

namespace ranvier::models {

void append_to_cache_cuda(runtime::StreamView stream, const CachedAttentionShape& shape, runtime::DType dtype,
                          void* keys, void* values, const void* qkv);
void cached_attention_cuda(runtime::StreamView stream, const CachedAttentionShape& shape, runtime::DType dtype,
                           void* out, const void* keys, const void* values, const void* qkv);

}  // namespace ranvier::models

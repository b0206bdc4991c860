// The CPU's kernels behind cached_attention.hpp; arguments are checked there. They block until the result is
// written.
#pragma once

#include "models/ops/cached_attention.hpp"
#include "runtime/compute_pool.hpp"

namespace ranvier::models {

void append_to_cache_cpu(const CachedAttentionShape& shape, runtime::DType dtype, void* keys, void* values,
                         const void* qkv);

[[nodiscard]] std::size_t cached_attention_cpu_workspace_bytes(const CachedAttentionShape& shape, int threads);

void cached_attention_cpu(runtime::ComputePool& pool, const CachedAttentionShape& shape, runtime::DType dtype,
                          void* out, const void* keys, const void* values, const void* qkv, std::byte* workspace);

}  // namespace ranvier::models

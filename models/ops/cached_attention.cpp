#include "models/ops/cached_attention.hpp"

#include "models/ops/dispatch.hpp"
#include "runtime/cuda_build.hpp"

namespace ranvier::models {
namespace {

void check(const CachedAttentionShape& shape) {
  expect(shape.heads >= 1 && shape.channels >= 1, "cached attention of {} heads of {} channels", shape.heads,
         shape.channels);
  expect(shape.key_heads >= 0 && shape.heads % shape.stored_key_heads() == 0 && shape.window >= 0,
         "cached attention of {} heads of queries over {} of keys, with a window of {}", shape.heads,
         shape.key_heads, shape.window);
  if (shape.past_place != nullptr) return;  // who writes it sees to that
  expect(shape.past >= 0 && shape.queries >= 0 && shape.past + shape.queries <= shape.capacity,
         "{} positions after {} in a cache of {}", shape.queries, shape.past, shape.capacity);
}

/// For the host, when the work runs.
CachedAttentionShape with_past(CachedAttentionShape shape) {
  if (shape.past_place != nullptr) shape.past = *shape.past_place;
  return shape;
}

}  // namespace

void append_to_cache(runtime::StreamView stream, const CachedAttentionShape& shape, runtime::DType dtype,
                     void* keys, void* values, const void* qkv) {
  expect_kernel(dtype, "append_to_cache");
  check(shape);
  if constexpr (runtime::with_cuda) {
    if (on_gpu(stream)) return append_to_cache_cuda(stream, shape, dtype, keys, values, qkv);
  }
  stream.launch(
      [=](runtime::ComputePool& pool) { append_to_cache_cpu(pool, with_past(shape), dtype, keys, values, qkv); });
}

std::size_t cached_attention_workspace_bytes(const CachedAttentionShape& shape, int threads) {
  return cached_attention_cpu_workspace_bytes(shape, threads);
}

void cached_attention(runtime::StreamView stream, const CachedAttentionShape& shape, runtime::DType dtype,
                      void* out, const void* keys, const void* values, const void* qkv, std::byte* workspace) {
  expect_kernel(dtype, "cached_attention");
  check(shape);
  if constexpr (runtime::with_cuda) {
    if (on_gpu(stream)) return cached_attention_cuda(stream, shape, dtype, out, keys, values, qkv, workspace);
  }
  stream.launch([=](runtime::ComputePool& pool) {
    cached_attention_cpu(pool, with_past(shape), dtype, out, keys, values, qkv, workspace);
  });
}

}  // namespace ranvier::models

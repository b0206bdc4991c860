#include "models/ops/cached_attention.hpp"

#include "models/ops/dispatch.hpp"
#include "models/ops/visible_keys.hpp"
#include "runtime/device/cuda_build.hpp"

#include <algorithm>

namespace ranvier::models {
namespace {

void check(const CachedAttentionShape& shape) {
  expect(shape.heads >= 1 && shape.channels >= 1, "cached attention of {} heads of {} channels", shape.heads,
         shape.channels);
  expect(shape.key_heads >= 0 && shape.heads % shape.stored_key_heads() == 0 && shape.window >= 0,
         "cached attention of {} heads of queries over {} of keys, with a window of {}", shape.heads,
         shape.key_heads, shape.window);
  if (shape.past_place != nullptr) return;  // the writer of *past_place checks it
  expect(shape.past >= 0 && shape.queries >= 0 && shape.past + shape.queries <= shape.capacity,
         "{} positions after {} in a cache of {}", shape.queries, shape.past, shape.capacity);
}

/// On the host, when the work runs: the shape with `past` from past_place.
CachedAttentionShape with_past(CachedAttentionShape shape) {
  if (shape.past_place != nullptr) shape.past = *shape.past_place;
  return shape;
}

/// Cost of reading and writing keys and values of the new positions.
runtime::WorkCost append_cost(const CachedAttentionShape& shape, runtime::DType dtype) {
  const auto Q = static_cast<std::size_t>(shape.queries), K = static_cast<std::size_t>(shape.stored_key_heads());
  return runtime::elementwise_cost(bytes_of(4 * Q * K * static_cast<std::size_t>(shape.channels), dtype), dtype);
}

/// Two multiplications per pair; queries, results, and visible keys and values. If only the device knows `past`: the
/// cost at the cache's last positions.
runtime::WorkCost attention_cost(const CachedAttentionShape& shape, runtime::DType dtype) {
  const auto Q = static_cast<std::size_t>(shape.queries), D = static_cast<std::size_t>(shape.channels);
  const auto H = static_cast<std::size_t>(shape.heads), K = static_cast<std::size_t>(shape.stored_key_heads());
  const auto window = static_cast<std::size_t>(shape.window);
  const std::size_t past = shape.past_place != nullptr ? static_cast<std::size_t>(shape.capacity) - Q
                                                       : static_cast<std::size_t>(shape.past);
  const std::size_t seen = window == 0 ? past + Q : std::min(past + Q, window + Q - 1);
  runtime::WorkCost cost =
      memory_cost(runtime::WorkKind::attention, dtype, bytes_of(2 * (Q * H + seen * K) * D, dtype));
  cost.flops = 4 * static_cast<double>(H * D) * causal_pairs(past, Q, window);
  return cost;
}

}  // namespace

void append_to_cache(runtime::StreamView stream, const CachedAttentionShape& shape, runtime::DType dtype,
                     void* keys, void* values, const void* qkv) {
  expect_kernel(dtype, "append_to_cache");
  check(shape);
  if constexpr (runtime::with_cuda) {
    if (on_gpu(stream)) return append_to_cache_cuda(stream, shape, dtype, keys, values, qkv);
  }
  stream.launch(append_cost(shape, dtype), [=](runtime::ComputePool& pool) {
    append_to_cache_cpu(pool, with_past(shape), dtype, keys, values, qkv);
  });
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
  stream.launch(attention_cost(shape, dtype), [=](runtime::ComputePool& pool) {
    cached_attention_cpu(pool, with_past(shape), dtype, out, keys, values, qkv, workspace);
  });
}

}  // namespace ranvier::models

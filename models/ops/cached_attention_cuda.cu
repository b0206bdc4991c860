#include "models/ops/cached_attention.hpp"

#include "models/ops/cuda_vector.cuh"
#include "runtime/base/error.hpp"

#include <cfloat>
#include <cmath>

namespace ranvier::models {
namespace {

constexpr int threads = 512;  // few blocks, one per head, each with all keys of it
constexpr int warps = threads / 32;
constexpr int ahead = 4;  // keys that a warp reads at a time

/// The shape for the device, with the actual number of key heads.
CachedAttentionShape with_key_heads(CachedAttentionShape shape) {
  shape.key_heads = shape.stored_key_heads();
  return shape;
}

__device__ int past_of(const CachedAttentionShape& shape) {
  return shape.past_place != nullptr ? *shape.past_place : shape.past;
}

template <typename T>
__global__ void __launch_bounds__(threads)
    append_kernel(CachedAttentionShape shape, T* keys, T* values, const T* qkv) {
  const std::size_t D = shape.channels, of_queries = shape.heads * D, of_keys = shape.key_heads * D;
  const std::size_t at = std::size_t{blockIdx.x} * threads + threadIdx.x;
  if (at >= static_cast<std::size_t>(shape.positions) * of_keys) return;
  const std::size_t i = at / of_keys, h = at % of_keys / D, d = at % D;
  const std::size_t place = (h * shape.capacity + past_of(shape) + i) * D + d;
  const T* const row = qkv + i * (of_queries + 2 * of_keys) + of_queries + h * D + d;
  keys[place] = row[0];
  values[place] = row[of_keys];
}

/// A block computes a query of a head. Warp w has keys w, w + warps, …, and each lane channels lane, lane + 32, ….
template <int parts, typename T>
__global__ void __launch_bounds__(threads)
    attend_kernel(CachedAttentionShape shape, T* out, const T* keys, const T* values, const T* qkv, float scale) {
  __shared__ float maxima[warps], totals[warps], sums[warps][32 * parts];
  const int D = shape.channels, i = static_cast<int>(blockIdx.x), h = static_cast<int>(blockIdx.y);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const std::size_t C = static_cast<std::size_t>(shape.heads) * D;
  const std::size_t row_channels = C + 2 * static_cast<std::size_t>(shape.key_heads) * D;
  const T* const query = qkv + static_cast<std::size_t>(i) * row_channels + static_cast<std::size_t>(h) * D;
  const std::size_t head = static_cast<std::size_t>(h / (shape.heads / shape.key_heads)) * shape.capacity * D;
  float q[parts], sum[parts] = {};
#pragma unroll
  for (int p = 0; p < parts; ++p) q[p] = lane + 32 * p < D ? cuda::to_float(query[lane + 32 * p]) * scale : 0.0f;

  float max = -FLT_MAX, total = 0;
  const int last = past_of(shape) + i;
  const int first = shape.window > 0 && last >= shape.window ? last + 1 - shape.window : 0;
  for (int begin = first + warp; begin <= last; begin += warps * ahead) {
    float scores[ahead] = {}, rows[ahead][parts];
#pragma unroll
    for (int a = 0; a < ahead; ++a) {
      const int j = begin + a * warps;
      const std::size_t row = head + static_cast<std::size_t>(j) * D;
#pragma unroll
      for (int p = 0; p < parts; ++p) {
        const bool present = j <= last && lane + 32 * p < D;
        scores[a] += present ? cuda::to_float(keys[row + lane + 32 * p]) * q[p] : 0.0f;
        rows[a][p] = present ? cuda::to_float(values[row + lane + 32 * p]) : 0.0f;
      }
    }
#pragma unroll
    for (int a = 0; a < ahead; ++a) {
      if (begin + a * warps > last) break;  // for all lanes
      const float score = cuda::warp_sum(scores[a]);
      const float greatest = fmaxf(max, score);
      const float kept = expf(max - greatest), weight = expf(score - greatest);
      max = greatest;
      total = total * kept + weight;
#pragma unroll
      for (int p = 0; p < parts; ++p) sum[p] = sum[p] * kept + weight * rows[a][p];
    }
  }
  if (lane == 0) {
    maxima[warp] = max;
    totals[warp] = total;
  }
#pragma unroll
  for (int p = 0; p < parts; ++p) sums[warp][lane + 32 * p] = sum[p];
  __syncthreads();
  if (warp != 0) return;
#pragma unroll
  for (int w = 1; w < warps; ++w) max = fmaxf(max, maxima[w]);
  total = 0;
#pragma unroll
  for (int p = 0; p < parts; ++p) sum[p] = 0;
#pragma unroll
  for (int w = 0; w < warps; ++w) {
    const float weight = expf(maxima[w] - max);
    total += totals[w] * weight;
#pragma unroll
    for (int p = 0; p < parts; ++p) sum[p] += sums[w][lane + 32 * p] * weight;
  }
#pragma unroll
  for (int p = 0; p < parts; ++p) {
    if (lane + 32 * p < D)
      out[static_cast<std::size_t>(i) * C + static_cast<std::size_t>(h) * D + lane + 32 * p] =
          cuda::from_float<T>(sum[p] / total);
  }
}

}  // namespace

void append_to_cache_cuda(runtime::StreamView stream, const CachedAttentionShape& shape, runtime::DType dtype,
                          void* keys, void* values, const void* qkv) {
  const std::size_t elements = static_cast<std::size_t>(shape.positions) *
                               static_cast<std::size_t>(shape.stored_key_heads()) *
                               static_cast<std::size_t>(shape.channels);
  cuda::with_type(dtype, [&]<typename T>(T) {
    cuda::launch_each<threads>("append_to_cache", stream, elements, append_kernel<T>, with_key_heads(shape), keys,
                               values, qkv);
  });
}

void cached_attention_cuda(runtime::StreamView stream, const CachedAttentionShape& shape, runtime::DType dtype,
                           void* out, const void* keys, const void* values, const void* qkv, std::byte*) {
  if (shape.positions == 0) return;
  expect(shape.channels <= 256, "cached attention with heads of {} channels: a GPU's kernel takes 256",
         shape.channels);
  const float scale = 1.0f / std::sqrt(static_cast<float>(shape.channels));
  const dim3 grid(cuda::blocks_of(static_cast<std::size_t>(shape.positions), 1),
                  cuda::blocks_down(static_cast<std::size_t>(shape.heads), 1));
  cuda::with_type(dtype, [&]<typename T>(T) {
    cuda::with_parts(shape.channels, [&](auto parts) {
      cuda::launch("cached_attention", stream, {grid, threads}, attend_kernel<parts(), T>, with_key_heads(shape),
                   out, keys, values, qkv, scale);
    });
  });
}

}  // namespace ranvier::models

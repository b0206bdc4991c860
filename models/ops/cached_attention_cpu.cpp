#include "models/ops/cached_attention.hpp"

#include "models/ops/dispatch.hpp"
#include "models/ops/memory_layout.hpp"
#include "models/ops/vector_math.hpp"
#include "models/ops/visible_keys.hpp"
#include "runtime/host/compute_pool.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace ranvier::models {
namespace {

using simd::Floats;

/// Offsets of a thread's arrays in its share of the workspace.
struct Arrays {
  explicit Arrays(const CachedAttentionShape& shape) {
    query = layout.add(static_cast<std::size_t>(shape.channels), sizeof(float));
    scores = layout.add(static_cast<std::size_t>(shape.capacity), sizeof(float));
  }

  MemoryLayout layout;
  std::size_t query;   ///< [D], divided by √D
  std::size_t scores;  ///< [T], query times each key; then their exponentials
};

/// Prefetches rows of one array and then of another shortly before they are read: the hardware prefetcher cannot guess
/// the next array. Addresses need not be valid.
class RowsAhead {
 public:
  template <typename T>
  RowsAhead(const T* rows, std::size_t n, const T* next, std::size_t channels)
      : rows_(reinterpret_cast<std::uintptr_t>(rows)), next_(reinterpret_cast<std::uintptr_t>(next)) {
    row_bytes_ = channels * sizeof(T);
    bytes_ = n * row_bytes_;
  }

  /// Called before row j of the first array is read.
  void fetch(std::size_t j) const {
    const std::size_t at = j * row_bytes_ + prefetched_bytes;
    const std::uintptr_t place = at < bytes_ ? rows_ + at : next_ + (at - bytes_);
    for (std::size_t line = 0; line < row_bytes_; line += 64)
      __builtin_prefetch(reinterpret_cast<const void*>(place + line));
  }

 private:
  static constexpr std::size_t prefetched_bytes = 4096;  // distance of prefetching

  std::uintptr_t rows_, next_;
  std::size_t row_bytes_, bytes_;
};

/// to[D] = Σ weights[j] · values[j, D] · factor, in the order of j.
template <typename T>
void weighted_sum(T* to, const float* weights, const T* values, std::size_t n, std::size_t channels, float factor,
                  const RowsAhead& ahead) {
  constexpr std::size_t together = 4;  // vectors of channels, so that the weights are read few times
  std::size_t d = 0;
  for (; d + together * simd::lanes <= channels; d += together * simd::lanes) {
    Floats sums[together] = {};
    for (std::size_t j = 0; j < n; ++j) {
      if (d == 0) ahead.fetch(j);
#pragma GCC unroll 8
      for (std::size_t v = 0; v < together; ++v)
        sums[v] += simd::load(values + j * channels + d + v * simd::lanes) * weights[j];
    }
    for (std::size_t v = 0; v < together; ++v) simd::store(to + d + v * simd::lanes, sums[v] * factor);
  }
  simd::for_lanes(d, channels, [&](std::size_t i, auto count) {
    Floats sum{};
    for (std::size_t j = 0; j < n; ++j) sum += simd::load(values + j * channels + i, count) * weights[j];
    simd::store(to + i, sum * factor, count);
  });
}

/// out[D] of one query of one head, over n positions of its cache. next_keys: keys read afterwards, to prefetch.
template <typename T>
void attend(T* out, const T* query, const T* keys, const T* values, const T* next_keys, std::size_t n,
            std::size_t channels, float* scaled, float* scores) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(channels));
  simd::for_lanes(0, channels, [&](std::size_t d, auto count) {
    simd::store(scaled + d, simd::load(query + d, count) * scale, count);
  });
  float greatest = -std::numeric_limits<float>::infinity();
  const RowsAhead keys_ahead(keys, n, values, channels), values_ahead(values, n, next_keys, channels);
  for (std::size_t j = 0; j < n; ++j) {
    keys_ahead.fetch(j);
    Floats sum{};
    simd::for_lanes(0, channels, [&](std::size_t d, auto count) {
      sum += simd::load(keys + j * channels + d, count) * simd::load(scaled + d, count);
    });
    scores[j] = simd::sum(sum);
    greatest = std::max(greatest, scores[j]);
  }
  Floats total{};
  simd::for_lanes(0, n, [&](std::size_t j, auto count) {
    simd::store(scores + j, simd::exp(simd::load(scores + j, count) - greatest), count);
    total += simd::load(scores + j, count);
  });
  weighted_sum(out, scores, values, n, channels, 1.0f / simd::sum(total), values_ahead);
}

/// On the host, when the work runs: the shape with `past` from past_place.
CachedAttentionShape with_past(CachedAttentionShape shape) {
  if (shape.past_place != nullptr) shape.past = *shape.past_place;
  return shape;
}

void check(const CachedAttentionShape& shape) {
  expect(shape.heads >= 1 && shape.channels >= 1, "cached attention of {} heads of {} channels", shape.heads,
         shape.channels);
  expect(shape.key_heads >= 0 && shape.heads % shape.stored_key_heads() == 0 && shape.window >= 0,
         "cached attention of {} heads of queries over {} of keys, with a window of {}", shape.heads,
         shape.key_heads, shape.window);
  if (shape.past_place != nullptr) return;  // the writer of *past_place checks it
  expect(shape.past >= 0 && shape.positions >= 0 && shape.past + shape.positions <= shape.capacity,
         "{} positions after {} in a cache of {}", shape.positions, shape.past, shape.capacity);
}

/// Cost of reading and writing keys and values of the new positions.
runtime::WorkCost append_cost(const CachedAttentionShape& shape, runtime::DType dtype) {
  const auto Q = static_cast<std::size_t>(shape.positions), K = static_cast<std::size_t>(shape.stored_key_heads());
  return runtime::elementwise_cost(bytes_of(4 * Q * K * static_cast<std::size_t>(shape.channels), dtype), dtype);
}

/// Two multiplications per pair; queries, results, and visible keys and values. If only the device knows `past`: the
/// cost at the cache's last positions.
runtime::WorkCost attention_cost(const CachedAttentionShape& shape, runtime::DType dtype) {
  const auto Q = static_cast<std::size_t>(shape.positions), D = static_cast<std::size_t>(shape.channels);
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

void append_to_cache(runtime::StreamView stream, const CachedAttentionShape& given, runtime::DType dtype,
                     void* keys, void* values, const void* qkv) {
  expect_kernel(dtype, "append_to_cache");
  check(given);
  if (ran_on_gpu<append_to_cache_cuda>(stream, given, dtype, keys, values, qkv)) return;
  stream.launch(append_cost(given, dtype), [=](runtime::ComputePool&) {
    const CachedAttentionShape shape = with_past(given);
    const std::size_t element = size_of(dtype);
    const auto heads = static_cast<std::size_t>(shape.heads),
               key_heads = static_cast<std::size_t>(shape.stored_key_heads());
    const auto capacity = static_cast<std::size_t>(shape.capacity);
    const std::size_t head_bytes = static_cast<std::size_t>(shape.channels) * element;
    const auto* const from = static_cast<const std::byte*>(qkv);
    for (std::size_t i = 0; i < static_cast<std::size_t>(shape.positions); ++i) {
      const std::byte* const row_keys = from + (i * (heads + 2 * key_heads) + heads) * head_bytes;
      for (std::size_t h = 0; h < key_heads; ++h) {
        const std::size_t place = (h * capacity + static_cast<std::size_t>(shape.past) + i) * head_bytes;
        std::memcpy(static_cast<std::byte*>(keys) + place, row_keys + h * head_bytes, head_bytes);
        std::memcpy(static_cast<std::byte*>(values) + place, row_keys + (key_heads + h) * head_bytes, head_bytes);
      }
    }
  });
}

std::size_t cached_attention_workspace_bytes(const CachedAttentionShape& shape, int threads) {
  return static_cast<std::size_t>(threads) * Arrays(shape).layout.bytes();
}

void cached_attention(runtime::StreamView stream, const CachedAttentionShape& given, runtime::DType dtype,
                      void* out, const void* keys, const void* values, const void* qkv, std::byte* workspace) {
  expect_kernel(dtype, "cached_attention");
  check(given);
  if (ran_on_gpu<cached_attention_cuda>(stream, given, dtype, out, keys, values, qkv, workspace)) return;
  stream.launch(attention_cost(given, dtype), [=](runtime::ComputePool& pool) {
    const CachedAttentionShape shape = with_past(given);
    const Arrays at(shape);
    const auto H = static_cast<std::size_t>(shape.heads), D = static_cast<std::size_t>(shape.channels);
    const auto Q = static_cast<std::size_t>(shape.positions), past = static_cast<std::size_t>(shape.past);
    const std::size_t sharing = H / static_cast<std::size_t>(shape.stored_key_heads()), row = shape.row_channels();
    const auto window = static_cast<std::size_t>(shape.window);
    const std::size_t head_elements = static_cast<std::size_t>(shape.capacity) * D;
    runtime::with_float_type(dtype, [&]<typename T>(T) {
      pool.run([&](int thread, int threads) {
        std::byte* const memory = workspace + static_cast<std::size_t>(thread) * at.layout.bytes();
        const auto share = runtime::share_of(H * Q, thread, threads);
        for (std::size_t item = share.begin; item < share.end; ++item) {
          const std::size_t head = item / Q, i = item % Q;
          const std::size_t end = past + i + 1, first = window > 0 && end > window ? end - window : 0;
          const auto place = [&](std::size_t of_head) { return of_head / sharing * head_elements + first * D; };
          const T* const all = static_cast<const T*>(keys);
          attend(static_cast<T*>(out) + (i * H + head) * D, static_cast<const T*>(qkv) + i * row + head * D,
                 all + place(head), static_cast<const T*>(values) + place(head),
                 all + place(std::min(head + 1, H - 1)), end - first, D,
                 reinterpret_cast<float*>(memory + at.query), reinterpret_cast<float*>(memory + at.scores));
        }
      });
    });
  });
}

}  // namespace ranvier::models

// Attention in float: blocks of 32 queries and 32 keys in shared memory. A warp has four rows of one operand, its lanes
// the 32 rows of the other, so that a row's softmax stays within the warp. Used for f32, and for heads too wide for
// tensor cores.
#include "models/ops/attention_arguments.cuh"

#include "runtime/kernels/launch.cuh"

#include <cfloat>

namespace ranvier::models::cuda {
namespace {

constexpr int block = 32;  // rows of a tile
constexpr int own = 4;     // rows of a warp
constexpr int warps = block / own, threads = 32 * warps;

/// 32 rows of D floats in shared memory. A gap spreads the elements of a column over all banks.
struct Rows {
  float* data;
  int stride;

  __device__ Rows(float* memory, int number, int D) : data(memory + number * block * (D + 1)), stride(D + 1) {}

  __device__ float at(int row, int column) const { return data[row * stride + column]; }

  /// Loads rows, with zeros past the end. Called by all threads.
  template <typename T>
  __device__ void fetch(const T* array, std::size_t row_stride, int first, int count, int D) const {
    for (int element = static_cast<int>(threadIdx.x); element < block * D; element += threads) {
      const int row = element / D, column = element % D;
      data[row * stride + column] =
          first + row < count ? to_float(array[static_cast<std::size_t>(first + row) * row_stride + column]) : 0.0f;
    }
  }
};

/// Position of the calling thread.
struct Place {
  int lane = static_cast<int>(threadIdx.x) % 32;
  int row = static_cast<int>(threadIdx.x) / 32 * own;  ///< first row of the warp
};

/// sums[r] = row `first + r` of a · row `lane` of b
__device__ void multiply_rows(float (&sums)[own], const Rows& a, const Rows& b, const Place& place, int D) {
#pragma unroll
  for (int r = 0; r < own; ++r) sums[r] = 0;
#pragma unroll 4
  for (int d = 0; d < D; ++d) {
    const float right = b.at(place.lane, d);
#pragma unroll
    for (int r = 0; r < own; ++r) sums[r] = fmaf(a.at(place.row + r, d), right, sums[r]);
  }
}

/// sums[r][p] += Σ_j weights[r] of lane j · b[j][lane + 32 p]
template <int parts>
__device__ void multiply_weights(float (&sums)[own][parts], const float (&weights)[own], const Rows& b,
                                 const Place& place, int D) {
#pragma unroll 4
  for (int j = 0; j < block; ++j) {
    float factors[own];
#pragma unroll
    for (int r = 0; r < own; ++r) factors[r] = __shfl_sync(0xffffffffu, weights[r], j);
#pragma unroll
    for (int p = 0; p < parts; ++p) {
      const int d = place.lane + 32 * p;
      const float right = d < D ? b.at(j, d) : 0.0f;
#pragma unroll
      for (int r = 0; r < own; ++r) sums[r][p] = fmaf(factors[r], right, sums[r][p]);
    }
  }
}

/// Stores factor · sums in rows first + r of an array, up to its end.
template <int parts, typename T>
__device__ void put(T* array, std::size_t row_stride, int first, int count, int D, const float (&factors)[own],
                    const float (&sums)[own][parts], const Place& place) {
#pragma unroll
  for (int r = 0; r < own; ++r)
#pragma unroll
    for (int p = 0; p < parts; ++p) {
      const int d = place.lane + 32 * p;
      if (first + r < count && d < D)
        array[static_cast<std::size_t>(first + r) * row_stride + d] = from_float<T>(sums[r][p] * factors[r]);
    }
}

__device__ bool kept(const AttentionArguments& arrays, int b, int h, int i, int j) {
  if (!arrays.dropout.on) return true;
  const std::uint64_t element = arrays.element(h, i, j);
  return (kept_of_quad(arrays.dropout, b, element / 4) >> (element % 4) & 1) != 0;
}

/// Keys visible to at least one of a tile's queries, in tiles starting at the first one. `masked`: as in
/// AttentionArguments::masked().
template <bool masked>
__device__ Range keys_of_tile(const AttentionArguments& arrays, int b, int i0) {
  if constexpr (!masked) return {0, i0 + 1};
  return {arrays.keys_of(b, i0).begin / block * block, arrays.keys_of(b, i0 + block - 1).end};
}

/// A block computes 32 queries of a head.
template <int parts, bool masked, typename T>
__global__ void __launch_bounds__(threads) forward_kernel(AttentionArguments arrays) {
  float* const memory = runtime::cuda::block_memory<float>();
  const int D = arrays.D, count = arrays.T;
  const Rows q(memory, 0, D), k(memory, 1, D), v(memory, 2, D);
  const Place place;
  const int b = static_cast<int>(blockIdx.x) / arrays.H, h = static_cast<int>(blockIdx.x) % arrays.H;
  const int i0 = static_cast<int>(gridDim.y - 1 - blockIdx.y) * block;  // blocks with the most work first
  const std::size_t stride = arrays.row();
  const T* const qkv = static_cast<const T*>(arrays.qkv);
  const T* const keys = arrays.of_three(qkv, b, h / arrays.sharing(), 1);
  const T* const values = arrays.of_three(qkv, b, h / arrays.sharing(), 2);

  q.fetch(arrays.of_three(qkv, b, h, 0), stride, i0, count, D);
  float maxima[own], totals[own] = {}, sums[own][parts] = {};
  Range seen[own];
#pragma unroll
  for (int r = 0; r < own; ++r) {
    maxima[r] = -FLT_MAX;
    if constexpr (masked) seen[r] = arrays.keys_of(b, i0 + place.row + r);
  }
  const Range needed = keys_of_tile<masked>(arrays, b, i0);
  for (int j0 = needed.begin; j0 < needed.end; j0 += block) {
    __syncthreads();
    k.fetch(keys, stride, j0, count, D);
    v.fetch(values, stride, j0, count, D);
    __syncthreads();
    float weights[own];
    multiply_rows(weights, q, k, place, D);
    const int j = j0 + place.lane;
#pragma unroll
    for (int r = 0; r < own; ++r) {
      const int i = i0 + place.row + r;
      const float score = (masked ? seen[r].has(j) : j <= i) ? weights[r] * arrays.scale : -INFINITY;
      const float max = fmaxf(maxima[r], warp_max(score));
      const float before = expf(maxima[r] - max), weight = expf(score - max);
      maxima[r] = max;
      totals[r] = fmaf(totals[r], before, warp_sum(weight));
#pragma unroll
      for (int p = 0; p < parts; ++p) sums[r][p] *= before;
      weights[r] = kept(arrays, b, h, i, j) ? weight : 0.0f;
    }
    multiply_weights(sums, weights, v, place, D);
  }
  float factors[own];
#pragma unroll
  for (int r = 0; r < own; ++r) {
    const int i = i0 + place.row + r;
    factors[r] = arrays.dropout.scale / totals[r];
    if (place.lane == 0 && i < count) arrays.of_rows(arrays.logsumexp, b, h)[i] = maxima[r] + logf(totals[r]);
  }
  put(arrays.of_one(static_cast<T*>(arrays.out), b, h), arrays.C(), i0 + place.row, count, D, factors, sums, place);
}

/// weight: attention weight of query i and key j after dropout, without dropout's scale. gradient: gradient of its
/// score, without 1/√D. Both are 0 if the key is not visible to the query.
__device__ void slope(const AttentionArguments& arrays, int b, int h, int i, int j, bool sees, float score,
                      float& weight, float& gradient, float logsumexp, float delta) {
  weight = 0;
  if (!sees || i >= arrays.T) {
    gradient = 0;
    return;
  }
  const float probability = expf(score * arrays.scale - logsumexp);
  const bool is_kept = kept(arrays, b, h, i, j);
  gradient = probability * ((is_kept ? gradient * arrays.dropout.scale : 0.0f) - delta);
  weight = is_kept ? probability : 0.0f;
}

template <int parts, bool masked, typename T>
__global__ void __launch_bounds__(threads) query_gradient_kernel(AttentionArguments arrays) {
  float* const memory = runtime::cuda::block_memory<float>();
  const int D = arrays.D, count = arrays.T;
  const Rows q(memory, 0, D), d_out(memory, 1, D), k(memory, 2, D), v(memory, 3, D);
  const Place place;
  const int b = static_cast<int>(blockIdx.x) / arrays.H, h = static_cast<int>(blockIdx.x) % arrays.H;
  const int i0 = static_cast<int>(gridDim.y - 1 - blockIdx.y) * block;
  const std::size_t stride = arrays.row();
  const T* const qkv = static_cast<const T*>(arrays.qkv);
  const T* const keys = arrays.of_three(qkv, b, h / arrays.sharing(), 1);
  const T* const values = arrays.of_three(qkv, b, h / arrays.sharing(), 2);

  q.fetch(arrays.of_three(qkv, b, h, 0), stride, i0, count, D);
  d_out.fetch(arrays.of_one(static_cast<const T*>(arrays.d_out), b, h), arrays.C(), i0, count, D);
  float logsumexp[own], delta[own], sums[own][parts] = {};
  Range seen[own];
#pragma unroll
  for (int r = 0; r < own; ++r) {
    if constexpr (masked) seen[r] = arrays.keys_of(b, i0 + place.row + r);
    const int i = min(i0 + place.row + r, count - 1);
    logsumexp[r] = arrays.of_rows(arrays.logsumexp, b, h)[i];
    delta[r] = arrays.of_rows(arrays.delta, b, h)[i];
  }
  const Range needed = keys_of_tile<masked>(arrays, b, i0);
  for (int j0 = needed.begin; j0 < needed.end; j0 += block) {
    __syncthreads();
    k.fetch(keys, stride, j0, count, D);
    v.fetch(values, stride, j0, count, D);
    __syncthreads();
    float scores[own], gradients[own];
    multiply_rows(scores, q, k, place, D);
    multiply_rows(gradients, d_out, v, place, D);
#pragma unroll
    for (int r = 0; r < own; ++r) {
      const int i = i0 + place.row + r, j = j0 + place.lane;
      float weight = 0;
      slope(arrays, b, h, i, j, masked ? seen[r].has(j) : j <= i, scores[r], weight, gradients[r], logsumexp[r],
            delta[r]);
    }
    multiply_weights(sums, gradients, k, place, D);
  }
  float factors[own];
#pragma unroll
  for (float& factor : factors) factor = arrays.scale;
  put(arrays.of_three(static_cast<T*>(arrays.d_qkv), b, h, 0), stride, i0 + place.row, count, D, factors, sums,
      place);
}

/// A block computes 32 keys of a head, and iterates over the query heads that read it; lanes are queries.
template <int parts, bool masked, typename T>
__global__ void __launch_bounds__(threads) key_gradient_kernel(AttentionArguments arrays) {
  float* const memory = runtime::cuda::block_memory<float>();
  const int D = arrays.D, count = arrays.T;
  const Rows k(memory, 0, D), v(memory, 1, D), q(memory, 2, D), d_out(memory, 3, D);
  const Place place;
  const int b = static_cast<int>(blockIdx.x) / arrays.K, key_head = static_cast<int>(blockIdx.x) % arrays.K;
  const int j0 = static_cast<int>(blockIdx.y) * block;
  const std::size_t stride = arrays.row();
  const T* const qkv = static_cast<const T*>(arrays.qkv);

  k.fetch(arrays.of_three(qkv, b, key_head, 1), stride, j0, count, D);
  v.fetch(arrays.of_three(qkv, b, key_head, 2), stride, j0, count, D);
  float d_keys[own][parts] = {}, d_values[own][parts] = {};
  Range seers[own], queries{j0, count};
  if constexpr (masked) {
#pragma unroll
    for (int r = 0; r < own; ++r) seers[r] = arrays.queries_of(b, j0 + place.row + r);
    queries = {arrays.queries_of(b, j0).begin / block * block, arrays.queries_of(b, j0 + block - 1).end};
  }
  for (int h = key_head * arrays.sharing(), i0 = queries.begin; h < (key_head + 1) * arrays.sharing();) {
    __syncthreads();
    q.fetch(arrays.of_three(qkv, b, h, 0), stride, i0, count, D);
    d_out.fetch(arrays.of_one(static_cast<const T*>(arrays.d_out), b, h), arrays.C(), i0, count, D);
    __syncthreads();
    const int i = i0 + place.lane;
    const float logsumexp = arrays.of_rows(arrays.logsumexp, b, h)[min(i, count - 1)];
    const float delta = arrays.of_rows(arrays.delta, b, h)[min(i, count - 1)];
    float scores[own], gradients[own];
    multiply_rows(scores, k, q, place, D);
    multiply_rows(gradients, v, d_out, place, D);
#pragma unroll
    for (int r = 0; r < own; ++r) {
      float weight = 0;
      const int j = j0 + place.row + r;
      slope(arrays, b, h, i, j, masked ? seers[r].has(i) : j <= i, scores[r], weight, gradients[r], logsumexp,
            delta);
      scores[r] = weight;
    }
    multiply_weights(d_values, scores, d_out, place, D);
    multiply_weights(d_keys, gradients, q, place, D);
    i0 += block;
    if (i0 >= queries.end) {
      i0 = queries.begin;
      ++h;
    }
  }
  float key_factors[own], value_factors[own];
#pragma unroll
  for (int r = 0; r < own; ++r) {
    key_factors[r] = arrays.scale;
    value_factors[r] = arrays.dropout.scale;
  }
  T* const d_qkv = static_cast<T*>(arrays.d_qkv);
  put(arrays.of_three(d_qkv, b, key_head, 1), stride, j0 + place.row, count, D, key_factors, d_keys, place);
  put(arrays.of_three(d_qkv, b, key_head, 2), stride, j0 + place.row, count, D, value_factors, d_values, place);
}

/// Launches a row of blocks for each of `heads`, with shared memory for this number of Rows.
void launch(const char* name, cudaStream_t queue, void (*kernel)(AttentionArguments),
            const AttentionArguments& arrays, std::size_t heads, std::size_t number) {
  const std::size_t row_bytes = static_cast<std::size_t>(arrays.D + 1) * sizeof(float);
  launch_heads(name, queue, kernel, arrays, heads, block, threads, number * block * row_bytes);
}

/// Calls f(parts, type); see with_parts().
template <typename F>
void dispatch(runtime::DType dtype, int D, const F& f) {
  with_type(dtype, [&](auto type) { with_parts(D, [&](auto parts) { f(parts, type); }); });
}

}  // namespace

void plain_attention_forward(cudaStream_t queue, runtime::DType dtype, const AttentionArguments& arrays) {
  dispatch(dtype, arrays.D, [&]<typename T>(auto parts, T) {
    launch("attention_forward", queue,
           arrays.masked() ? forward_kernel<parts(), true, T> : forward_kernel<parts(), false, T>, arrays,
           arrays.heads(), 3);
  });
}

void plain_attention_backward(cudaStream_t queue, runtime::DType dtype, const AttentionArguments& arrays) {
  dispatch(dtype, arrays.D, [&]<typename T>(auto parts, T) {
    launch("attention_backward of keys and values", queue,
           arrays.masked() ? key_gradient_kernel<parts(), true, T> : key_gradient_kernel<parts(), false, T>, arrays,
           arrays.key_heads(), 4);
    launch("attention_backward of queries", queue,
           arrays.masked() ? query_gradient_kernel<parts(), true, T> : query_gradient_kernel<parts(), false, T>,
           arrays, arrays.heads(), 4);
  });
}

}  // namespace ranvier::models::cuda

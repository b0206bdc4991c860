// FlashAttention-2 (Dao 2023) on tensor cores. Forward and query gradients: a block has rows of queries and iterates
// over keys. Key and value gradients: a block has keys and iterates over queries, with transposed scores, so that
// weights need no conversion to left operands. The two backward kernels need no atomic additions, but two
// multiplications more than a single kernel for all three gradients.
#include "models/ops/attention_arguments.cuh"

#include "models/ops/tensor_tile.cuh"
#include "runtime/kernels/launch.cuh"

#include <cfloat>
#include <cmath>
#include <type_traits>

namespace ranvier::models::cuda {
namespace {

constexpr float ln_2 = 0.69314718f;

/// Number of the block of rows; blocks with the most work come first.
__device__ int block_from_the_end() { return static_cast<int>(gridDim.y - 1 - blockIdx.y); }

/// Dropout of weights with rows i0 + g, i0 + g + 8 (queries) and columns j0 + 8n + 2c … (keys): calls visit(n, sum,
/// kept). Two neighbouring lanes share a quad of keys. One draws bits for it, the other for the quad eight keys later.
template <int tiles, typename Visit>
__device__ void for_kept_of_query_rows(const AttentionArguments& arrays, int b, int h, int i0, int j0,
                                       const Visit& visit) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, c = lane % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int n = 0; n < tiles; n += 2) {
      const std::uint32_t own =
          kept_of_four(arrays.dropout, b, arrays.element(h, i0 + 8 * half + g, j0 + 8 * n + c % 2 * 8 + c / 2 * 4));
      const std::uint32_t other = __shfl_xor_sync(0xffffffffu, own, 1);
      const std::uint32_t first = (c % 2 == 0 ? own : other) >> (c % 2 * 2);
      const std::uint32_t second = (c % 2 == 0 ? other : own) >> (c % 2 * 2);
      visit(n, 2 * half, (first & 1) != 0);
      visit(n, 2 * half + 1, (first & 2) != 0);
      visit(n + 1, 2 * half, (second & 1) != 0);
      visit(n + 1, 2 * half + 1, (second & 2) != 0);
    }
  }
}

/// The same for rows j0 + g, j0 + g + 8 (keys) and columns i0 + 8n + 2c … (queries). Four lanes share a quad of keys;
/// each draws for another half and column.
template <int tiles, typename Visit>
__device__ void for_kept_of_key_rows(const AttentionArguments& arrays, int b, int h, int i0, int j0,
                                     const Visit& visit) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, c = lane % 4;
#pragma unroll
  for (int n = 0; n < tiles; ++n) {
    const int own_half = g % 4 / 2, own_column = g % 2;
    const std::uint32_t own = kept_of_four(
        arrays.dropout, b, arrays.element(h, i0 + 8 * n + 2 * c + own_column, j0 + 8 * own_half + g / 4 * 4));
#pragma unroll
    for (int sum = 0; sum < 4; ++sum) {
      const std::uint32_t bits = __shfl_sync(0xffffffffu, own, (lane & ~12) | sum << 2);
      visit(n, sum, (bits >> (g % 4) & 1) != 0);
    }
  }
}

/// Keys visible to queries i0 … i0+rows-1.
struct SeenKeys {
  Range of_any, of_all;

  __device__ SeenKeys(const AttentionArguments& arrays, int b, int i0, int rows) {
    const Range first = arrays.keys_of(b, i0), last = arrays.keys_of(b, i0 + rows - 1);
    of_any = {first.begin, last.end};
    of_all = {last.begin, first.end};
  }
};

// Forward ------------------------------------------------------------------------------------------------

template <typename T, int columns>
struct Forward {
  static constexpr int tall = 2, warps = 4, threads = 32 * warps;
  static constexpr int queries = 16 * tall * warps, keys = 64;

  struct Shared {
    Tile<T, queries, columns> q;  // later out
    Tile<T, keys, columns> k[2], v[2];
  };
};

template <typename T, int columns, bool drops, bool masked>
__global__ void __launch_bounds__(Forward<T, columns>::threads, 2) forward_kernel(const AttentionArguments arrays) {
  using F = Forward<T, columns>;
  constexpr int tall = F::tall, key_tiles = F::keys / 8;
  auto& shared = *runtime::cuda::block_memory<typename F::Shared>();

  const int b = static_cast<int>(blockIdx.x) / arrays.H, h = static_cast<int>(blockIdx.x) % arrays.H;
  const int i0 = block_from_the_end() * F::queries;
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, c = lane % 4;
  const int row = static_cast<int>(threadIdx.x) / 32 * 16 * tall;  // first row of the warp
  const std::size_t stride = arrays.row();
  const T* const qkv = static_cast<const T*>(arrays.qkv);
  const T* const keys = arrays.of_three(qkv, b, h / arrays.sharing(), 1);
  const T* const values = arrays.of_three(qkv, b, h / arrays.sharing(), 2);
  const auto fetch = [&](int j0, int place) {
    shared.k[place].template fetch<F::threads>(keys, stride, j0, arrays.T, arrays.D, arrays.wide);
    shared.v[place].template fetch<F::threads>(values, stride, j0, arrays.T, arrays.D, arrays.wide);
    end_group();
  };

  shared.q.template fetch<F::threads>(arrays.of_three(qkv, b, h, 0), stride, i0, arrays.T, arrays.D, arrays.wide);
  int begin = 0, end = min(arrays.T, i0 + F::queries);
  Range of_any, of_all;  // keys visible to any, and to all, of the warp's rows
  if constexpr (masked) {
    const Range of_block = SeenKeys(arrays, b, i0, F::queries).of_any;
    begin = of_block.begin / F::keys * F::keys;
    end = of_block.end;
    const SeenKeys of_warp(arrays, b, i0 + row, 16 * tall);
    of_any = of_warp.of_any;
    of_all = of_warp.of_all;
  }
  fetch(begin, 0);
  const float scale = arrays.scale * log2_e;
  Sums out[tall][columns / 8] = {};
  float maxima[tall][2], totals[tall][2] = {};  // maxima of scores · scale; totals are a lane's share
#pragma unroll
  for (int t = 0; t < tall; ++t) maxima[t][0] = maxima[t][1] = masked ? -FLT_MAX / 2 : -INFINITY;

  for (int j0 = begin, place = 0; j0 < end; j0 += F::keys, place ^= 1) {
    if (j0 + F::keys < end) {
      fetch(j0 + F::keys, place ^ 1);
      wait_for_groups<1>();
    } else {
      wait_for_groups<0>();
    }
    __syncthreads();
    // else no query of this warp attends to these keys
    if (masked ? j0 < of_any.end && j0 + F::keys > of_any.begin : j0 < i0 + row + 16 * tall) {
      Sums weights[tall][key_tiles] = {};
      multiply_rows(weights, shared.q, row, shared.k[place]);
      if constexpr (masked) {
        if (j0 < of_all.begin || j0 + F::keys > of_all.end) {
#pragma unroll
          for (int t = 0; t < tall; ++t)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
              const Range seen = arrays.keys_of(b, i0 + row + 16 * t + 8 * half + g);  // needed for few tiles
#pragma unroll
              for (int n = 0; n < key_tiles; ++n)
#pragma unroll
                for (int e = 0; e < 2; ++e)
                  if (!seen.has(j0 + 8 * n + 2 * c + e)) weights[t][n][2 * half + e] = -INFINITY;
            }
        }
      } else if (j0 + F::keys - 1 > i0 + row) {
#pragma unroll
        for (int t = 0; t < tall; ++t)
#pragma unroll
          for (int n = 0; n < key_tiles; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e)
              if (j0 + 8 * n + 2 * c + e % 2 > i0 + row + 16 * t + 8 * (e / 2) + g) weights[t][n][e] = -INFINITY;
      }
#pragma unroll
      for (int t = 0; t < tall; ++t)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float max = weights[t][0][2 * half];
#pragma unroll
          for (int n = 0; n < key_tiles; ++n)
            max = fmaxf(max, fmaxf(weights[t][n][2 * half], weights[t][n][2 * half + 1]));
          max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 1));
          max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 2));
          max = fmaxf(maxima[t][half],
                      max * scale);  // finite: key 0 is in the first tile, and every query's; or so from the start
          const float kept = power_of_2(maxima[t][half] - max);
          maxima[t][half] = max;
          float total = 0;
#pragma unroll
          for (int n = 0; n < key_tiles; ++n)
#pragma unroll
            for (int e = 2 * half; e < 2 * half + 2; ++e) {
              weights[t][n][e] = power_of_2(fmaf(weights[t][n][e], scale, -max));
              total += weights[t][n][e];
            }
          totals[t][half] = fmaf(totals[t][half], kept, total);
#pragma unroll
          for (int n = 0; n < columns / 8; ++n) {
            out[t][n][2 * half] *= kept;
            out[t][n][2 * half + 1] *= kept;
          }
        }
      if constexpr (drops) {
#pragma unroll
        for (int t = 0; t < tall; ++t)
          for_kept_of_query_rows<key_tiles>(arrays, b, h, i0 + row + 16 * t, j0, [&](int n, int e, bool kept) {
            if (!kept) weights[t][n][e] = 0;
          });
      }
      multiply_weights(out, weights, shared.v[place]);
    }
    __syncthreads();
  }

  float factors[tall][2];
  float* const logsumexp = arrays.of_rows(arrays.logsumexp, b, h);
#pragma unroll
  for (int t = 0; t < tall; ++t)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float total = totals[t][half];
      total += __shfl_xor_sync(0xffffffffu, total, 1);
      total += __shfl_xor_sync(0xffffffffu, total, 2);
      factors[t][half] = arrays.dropout.scale / total;
      const int i = i0 + row + 16 * t + 8 * half + g;
      if (c == 0 && i < arrays.T) logsumexp[i] = (maxima[t][half] + log2f(total)) * ln_2;
    }
  shared.q.put(arrays.of_one(static_cast<T*>(arrays.out), b, h), arrays.C(), i0, arrays.T, arrays.D, arrays.wide,
               row, factors, out);
}

// Backward -----------------------------------------------------------------------------------------------

/// Computes weights and gradients of scores in place, without constant factors: weights = P (0 where dropped),
/// gradients = P · (gradient − δ). Dropout's scale and √D are applied later.
struct Slopes {
  float score_scale;  ///< log2 e / √D
  float dropout_scale;

  __device__ void apply(float& score, float& gradient, float logsumexp, float delta, bool visible,
                        bool kept) const {
    const float weight = power_of_2(fmaf(score, score_scale, -logsumexp));
    const float slope = weight * ((kept ? gradient * dropout_scale : 0.0f) - delta);
    gradient = visible ? slope : 0.0f;  // a selection, not a factor: invisible values may be NaN
    score = visible && kept ? weight : 0.0f;
  }
};

template <typename T, int columns>
struct QueryGradient {
  static constexpr int warps = 8, threads = 32 * warps;
  static constexpr int queries = 16 * warps, keys = 64;

  struct Shared {
    Tile<T, queries, columns> q, d_out;  // q is later the result
    Tile<T, keys, columns> k[2], v[2];
  };
};

template <typename T, int columns, bool drops, bool masked>
__global__ void __launch_bounds__(QueryGradient<T, columns>::threads, columns <= 64 ? 2 : 1)
    query_gradient_kernel(const AttentionArguments arrays) {
  using G = QueryGradient<T, columns>;
  constexpr int key_tiles = G::keys / 8;
  auto& shared = *runtime::cuda::block_memory<typename G::Shared>();

  const int b = static_cast<int>(blockIdx.x) / arrays.H, h = static_cast<int>(blockIdx.x) % arrays.H;
  const int i0 = block_from_the_end() * G::queries;
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, c = lane % 4;
  const int row = static_cast<int>(threadIdx.x) / 32 * 16;
  const std::size_t stride = arrays.row();
  const T* const qkv = static_cast<const T*>(arrays.qkv);
  const T* const keys = arrays.of_three(qkv, b, h / arrays.sharing(), 1);
  const T* const values = arrays.of_three(qkv, b, h / arrays.sharing(), 2);
  const auto fetch = [&](int j0, int place) {
    shared.k[place].template fetch<G::threads>(keys, stride, j0, arrays.T, arrays.D, arrays.wide);
    shared.v[place].template fetch<G::threads>(values, stride, j0, arrays.T, arrays.D, arrays.wide);
    end_group();
  };

  shared.q.template fetch<G::threads>(arrays.of_three(qkv, b, h, 0), stride, i0, arrays.T, arrays.D, arrays.wide);
  shared.d_out.template fetch<G::threads>(arrays.of_one(static_cast<const T*>(arrays.d_out), b, h), arrays.C(), i0,
                                          arrays.T, arrays.D, arrays.wide);
  int begin = 0, end = min(arrays.T, i0 + G::queries);
  Range of_any, seen[2];  // keys visible to any of the warp's rows, and to each of the lane's
  if constexpr (masked) {
    const Range of_block = SeenKeys(arrays, b, i0, G::queries).of_any;
    begin = of_block.begin / G::keys * G::keys;
    end = of_block.end;
    of_any = SeenKeys(arrays, b, i0 + row, 16).of_any;
#pragma unroll
    for (int half = 0; half < 2; ++half) seen[half] = arrays.keys_of(b, i0 + row + 8 * half + g);
  }
  fetch(begin, 0);
  float logsumexp[2], delta[2];  // logsumexp to base 2
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int i = i0 + row + 8 * half + g;
    logsumexp[half] = i < arrays.T ? arrays.of_rows(arrays.logsumexp, b, h)[i] * log2_e : INFINITY;
    delta[half] = i < arrays.T ? arrays.of_rows(arrays.delta, b, h)[i] : 0.0f;
  }
  const Slopes slopes{arrays.scale * log2_e, arrays.dropout.scale};
  Sums result[1][columns / 8] = {};

  for (int j0 = begin, place = 0; j0 < end; j0 += G::keys, place ^= 1) {
    if (j0 + G::keys < end) {
      fetch(j0 + G::keys, place ^ 1);
      wait_for_groups<1>();
    } else {
      wait_for_groups<0>();
    }
    __syncthreads();
    if (masked ? j0 < of_any.end && j0 + G::keys > of_any.begin : j0 < i0 + row + 16) {
      Sums scores[1][key_tiles] = {}, gradients[1][key_tiles] = {};
      multiply_rows(scores, shared.q, row, shared.k[place]);
      multiply_rows(gradients, shared.d_out, row, shared.v[place]);
      const auto slope = [&](int n, int e, bool kept) {
        const int j = j0 + 8 * n + 2 * c + e % 2;
        const bool visible = masked ? seen[e / 2].has(j) : j <= i0 + row + 8 * (e / 2) + g;
        slopes.apply(scores[0][n][e], gradients[0][n][e], logsumexp[e / 2], delta[e / 2], visible, kept);
      };
      if constexpr (drops) {
        for_kept_of_query_rows<key_tiles>(arrays, b, h, i0 + row, j0, slope);
      } else {
#pragma unroll
        for (int n = 0; n < key_tiles; ++n)
#pragma unroll
          for (int e = 0; e < 4; ++e) slope(n, e, true);
      }
      multiply_weights(result, gradients, shared.k[place]);
    }
    __syncthreads();
  }
  const float factors[1][2] = {{arrays.scale, arrays.scale}};
  shared.q.put(arrays.of_three(static_cast<T*>(arrays.d_qkv), b, h, 0), stride, i0, arrays.T, arrays.D, arrays.wide,
               row, factors, result);
}

template <typename T, int columns>
struct KeyGradient {
  static constexpr int warps = 8, threads = 32 * warps;
  static constexpr int keys = 16 * warps, queries = columns <= 64 ? 64 : 32;

  struct Shared {
    Tile<T, keys, columns> k, v;  // later their gradients
    Tile<T, queries, columns> q[2], d_out[2];
    float logsumexp[2][queries], delta[2][queries];  // logsumexp to base 2
  };
};

template <typename T, int columns, bool drops, bool masked>
__global__ void __launch_bounds__(KeyGradient<T, columns>::threads, 1)
    key_gradient_kernel(const AttentionArguments arrays) {
  using G = KeyGradient<T, columns>;
  constexpr int query_tiles = G::queries / 8;
  auto& shared = *runtime::cuda::block_memory<typename G::Shared>();

  const int b = static_cast<int>(blockIdx.x) / arrays.K, key_head = static_cast<int>(blockIdx.x) % arrays.K;
  const int first_head = key_head * arrays.sharing(), end_head = first_head + arrays.sharing();  // its queries
  const int j0 = static_cast<int>(blockIdx.y) * G::keys;  // the first keys have the most queries
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, c = lane % 4;
  const int row = static_cast<int>(threadIdx.x) / 32 * 16;
  const std::size_t stride = arrays.row();
  const T* const qkv = static_cast<const T*>(arrays.qkv);
  const auto fetch = [&](int h, int i0, int place) {
    const T* const queries = arrays.of_three(qkv, b, h, 0);
    const T* const d_out = arrays.of_one(static_cast<const T*>(arrays.d_out), b, h);
    const float* const logsumexp = arrays.of_rows(arrays.logsumexp, b, h);
    const float* const delta = arrays.of_rows(arrays.delta, b, h);
    shared.q[place].template fetch<G::threads>(queries, stride, i0, arrays.T, arrays.D, arrays.wide);
    shared.d_out[place].template fetch<G::threads>(d_out, arrays.C(), i0, arrays.T, arrays.D, arrays.wide);
    end_group();
    for (int i = static_cast<int>(threadIdx.x); i < G::queries; i += G::threads) {
      const bool present = i0 + i < arrays.T;
      shared.logsumexp[place][i] = present ? logsumexp[i0 + i] * log2_e : INFINITY;  // gives weight zero
      shared.delta[place][i] = present ? delta[i0 + i] : 0.0f;
    }
  };

  shared.k.template fetch<G::threads>(arrays.of_three(qkv, b, key_head, 1), stride, j0, arrays.T, arrays.D,
                                      arrays.wide);
  shared.v.template fetch<G::threads>(arrays.of_three(qkv, b, key_head, 2), stride, j0, arrays.T, arrays.D,
                                      arrays.wide);
  int begin = j0 / G::queries * G::queries, end = arrays.T;  // earlier queries attend to none of these keys
  Range of_any, seers[2];  // queries attending to the warp's rows; to each of the lane's
  if constexpr (masked) {
    begin = arrays.queries_of(b, j0).begin / G::queries * G::queries;
    end = arrays.queries_of(b, j0 + G::keys - 1).end;
    of_any = {arrays.queries_of(b, j0 + row).begin, arrays.queries_of(b, j0 + row + 15).end};
#pragma unroll
    for (int half = 0; half < 2; ++half) seers[half] = arrays.queries_of(b, j0 + row + 8 * half + g);
  }
  fetch(first_head, begin, 0);
  const Slopes slopes{arrays.scale * log2_e, arrays.dropout.scale};
  Sums d_keys[1][columns / 8] = {}, d_values[1][columns / 8] = {};

  for (int h = first_head, i0 = begin, place = 0; h < end_head; place ^= 1) {
    int next_head = h, next = i0 + G::queries;
    if (next >= end) {
      next = begin;
      ++next_head;
    }
    if (next_head < end_head) {
      fetch(next_head, next, place ^ 1);
      wait_for_groups<1>();
    } else {
      wait_for_groups<0>();
    }
    __syncthreads();
    // else none of these queries attends to this warp's keys
    if (masked ? i0 < of_any.end && i0 + G::queries > of_any.begin : i0 + G::queries > j0 + row) {
      Sums scores[1][query_tiles] = {}, gradients[1][query_tiles] = {};
      multiply_rows(scores, shared.k, row, shared.q[place]);
      multiply_rows(gradients, shared.v, row, shared.d_out[place]);
      const auto slope = [&](int n, int e, bool kept) {
        const int column = 8 * n + 2 * c + e % 2;
        const bool visible = masked ? seers[e / 2].has(i0 + column) : j0 + row + 8 * (e / 2) + g <= i0 + column;
        slopes.apply(scores[0][n][e], gradients[0][n][e], shared.logsumexp[place][column],
                     shared.delta[place][column], visible, kept);
      };
      if constexpr (drops) {
        for_kept_of_key_rows<query_tiles>(arrays, b, h, i0, j0 + row, slope);
      } else {
#pragma unroll
        for (int n = 0; n < query_tiles; ++n)
#pragma unroll
          for (int e = 0; e < 4; ++e) slope(n, e, true);
      }
      multiply_weights(d_values, scores, shared.d_out[place]);
      multiply_weights(d_keys, gradients, shared.q[place]);
    }
    h = next_head;
    i0 = next;
    __syncthreads();
  }
  const float key_factors[1][2] = {{arrays.scale, arrays.scale}};
  const float value_factors[1][2] = {{arrays.dropout.scale, arrays.dropout.scale}};
  T* const d_qkv = static_cast<T*>(arrays.d_qkv);
  shared.k.put(arrays.of_three(d_qkv, b, key_head, 1), stride, j0, arrays.T, arrays.D, arrays.wide, row,
               key_factors, d_keys);
  shared.v.put(arrays.of_three(d_qkv, b, key_head, 2), stride, j0, arrays.T, arrays.D, arrays.wide, row,
               value_factors, d_values);
}

// Launches -----------------------------------------------------------------------------------------------

/// Calls f(T, columns, drops, masked), the last three as integral_constant. `columns`: the smallest number that holds
/// D.
template <typename F>
void dispatch(const AttentionArguments& arrays, runtime::DType dtype, const F& f) {
  const auto with_flag = [](bool flag, const auto& of_flag) {
    flag ? of_flag(std::true_type{}) : of_flag(std::false_type{});
  };
  const auto with_columns = [&](auto type, auto columns) {
    with_flag(arrays.dropout.on, [&](auto drops) {
      with_flag(arrays.masked(), [&](auto masked) { f(type, columns, drops, masked); });
    });
  };
  const auto of_type = [&](auto type) {
    if (arrays.D <= 64) {
      with_columns(type, std::integral_constant<int, 64>{});
    } else {
      with_columns(type, std::integral_constant<int, 128>{});
    }
  };
  if (dtype == runtime::DType::bf16) {
    of_type(Bf16{});
  } else {
    of_type(F16{});
  }
}

}  // namespace

void tensor_attention_forward(cudaStream_t queue, runtime::DType dtype, const AttentionArguments& arrays) {
  dispatch(arrays, dtype, [&]<typename T>(T, auto columns, auto drops, auto masked) {
    using F = Forward<T, columns()>;
    launch_heads("attention_forward", queue, forward_kernel<T, columns(), drops(), masked()>, arrays,
                 arrays.heads(), F::queries, F::threads, sizeof(typename F::Shared));
  });
}

void tensor_attention_backward(cudaStream_t queue, runtime::DType dtype, const AttentionArguments& arrays) {
  dispatch(arrays, dtype, [&]<typename T>(T, auto columns, auto drops, auto masked) {
    using Q = QueryGradient<T, columns()>;
    using K = KeyGradient<T, columns()>;
    launch_heads("attention_backward of keys and values", queue,
                 key_gradient_kernel<T, columns(), drops(), masked()>, arrays, arrays.key_heads(), K::keys,
                 K::threads, sizeof(typename K::Shared));
    launch_heads("attention_backward of queries", queue, query_gradient_kernel<T, columns(), drops(), masked()>,
                 arrays, arrays.heads(), Q::queries, Q::threads, sizeof(typename Q::Shared));
  });
}

}  // namespace ranvier::models::cuda

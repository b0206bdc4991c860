// What the kernels of attention take, and the two families of them. Only .cu files include this.
//
// Letters as in attention.hpp. δ[b, h, i] = Σ_d d_out · out is the mean of a query's gradients of its weights
// (Dao et al. 2022, §B.4).
#pragma once

#include "models/ops/attention.hpp"
#include "models/ops/philox.cuh"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace ranvier::models::cuda {

/// begin … end-1.
struct Range {
  int begin = 0, end = 0;

  [[nodiscard]] __device__ bool has(int i) const { return begin <= i && i < end; }
};

struct AttentionArrays {
  int B = 0, T = 0, H = 0, K = 0, D = 0;
  bool causal = true;
  int window = 0;
  AttentionBounds bounds;
  bool wide = false;  ///< every row of a head begins on 16 bytes, and has a multiple of them
  DropoutRule dropout;
  float scale = 0;  ///< 1/√D

  const void* qkv = nullptr;    ///< [B, T, (H + 2K)·D]
  void* out = nullptr;          ///< [B, T, C]
  float* logsumexp = nullptr;   ///< [B, H, T]
  const void* d_out = nullptr;  ///< [B, T, C]
  void* d_qkv = nullptr;        ///< [B, T, (H + 2K)·D]
  float* delta = nullptr;       ///< [B, H, T]

  [[nodiscard]] __host__ __device__ std::size_t C() const {
    return static_cast<std::size_t>(H) * static_cast<std::size_t>(D);
  }
  /// Elements of a row of qkv.
  [[nodiscard]] __host__ __device__ std::size_t row() const {
    return static_cast<std::size_t>(H + 2 * K) * static_cast<std::size_t>(D);
  }
  /// Of all samples.
  [[nodiscard]] std::size_t heads() const { return static_cast<std::size_t>(B) * static_cast<std::size_t>(H); }
  [[nodiscard]] std::size_t key_heads() const { return static_cast<std::size_t>(B) * static_cast<std::size_t>(K); }
  /// How many heads of queries read one of keys.
  [[nodiscard]] __device__ int sharing() const { return H / K; }

  /// Whether positions see other than themselves and all before them: a parameter of kernels.
  [[nodiscard]] bool masked() const { return !causal || window > 0 || bounds.any(); }

  /// First row of a head in an array [B, T, (H + 2K)·D]; `which` is 0 for queries, 1 for keys, 2 for values, whose
  /// heads count apart.
  template <typename T>
  [[nodiscard]] __device__ T* of_three(T* array, int b, int h, int which) const {
    const int head = which == 0 ? h : H + (which - 1) * K + h;
    return array + static_cast<std::size_t>(b) * static_cast<std::size_t>(this->T) * row() +
           static_cast<std::size_t>(head) * static_cast<std::size_t>(D);
  }
  /// The same in an array [B, T, C].
  template <typename T>
  [[nodiscard]] __device__ T* of_one(T* array, int b, int h) const {
    return array + static_cast<std::size_t>(b) * static_cast<std::size_t>(this->T) * C() +
           static_cast<std::size_t>(h) * static_cast<std::size_t>(D);
  }
  /// The same in an array [B, H, T].
  [[nodiscard]] __device__ float* of_rows(float* array, int b, int h) const {
    return array + (static_cast<std::size_t>(b) * static_cast<std::size_t>(H) + static_cast<std::size_t>(h)) *
                       static_cast<std::size_t>(T);
  }

  /// The keys that position i sees, the last one's beyond it. Itself is one of them, whatever the bounds say.
  [[nodiscard]] __device__ Range keys_of(int b, int i) const {
    if (i >= T) i = T - 1;
    const std::size_t place =
        static_cast<std::size_t>(b) * static_cast<std::size_t>(T) + static_cast<std::size_t>(i);
    Range keys{0, causal ? i + 1 : T};
    if (window > 0 && i >= window) keys.begin = i + 1 - window;
    if (bounds.first_key != nullptr) keys.begin = max(keys.begin, min(i, bounds.first_key[place]));
    if (bounds.end_key != nullptr) keys.end = min(keys.end, max(i + 1, bounds.end_key[place]));
    return keys;
  }
  /// The queries that see key j, the last one's beyond it: as far as bounds do not decrease.
  [[nodiscard]] __device__ Range queries_of(int b, int j) const {
    if (j >= T) j = T - 1;
    Range queries{j, j + 1};
    // Of what may see it, the first half that does not is cut off, again and again.
    for (int low = causal ? j : 0; low < queries.begin;) {
      const int middle = low + (queries.begin - low) / 2;
      if (keys_of(b, middle).end > j) {
        queries.begin = middle;
      } else {
        low = middle + 1;
      }
    }
    for (int high = T; queries.end < high;) {
      const int middle = queries.end + (high - queries.end) / 2;
      if (keys_of(b, middle).begin > j) {
        high = middle;
      } else {
        queries.end = middle + 1;
      }
    }
    return queries;
  }

  /// The number of weight (i, j) within a sample, which names its dropout.
  [[nodiscard]] __device__ std::uint64_t element(int h, int i, int j) const {
    return (static_cast<std::uint64_t>(h) * static_cast<std::uint64_t>(T) + static_cast<std::uint64_t>(i)) *
               static_cast<std::uint64_t>(T) +
           static_cast<std::uint64_t>(j);
  }
};

/// On tensor cores: bf16 and f16, heads of up to 128 channels.
inline constexpr int tensor_attention_channels = 128;
void tensor_attention_forward(cudaStream_t queue, runtime::DType dtype, const AttentionArrays& arrays);
void tensor_attention_backward(cudaStream_t queue, runtime::DType dtype, const AttentionArrays& arrays);

/// In floats: every type, heads of up to 256 channels.
inline constexpr int plain_attention_channels = 256;
void plain_attention_forward(cudaStream_t queue, runtime::DType dtype, const AttentionArrays& arrays);
void plain_attention_backward(cudaStream_t queue, runtime::DType dtype, const AttentionArrays& arrays);

}  // namespace ranvier::models::cuda

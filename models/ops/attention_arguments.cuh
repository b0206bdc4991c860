// Arguments of the GPU's attention kernels, and the two families of kernels. Only .cu files include this.
//
// Letters as in attention.hpp. δ[b, h, i] = Σ_d d_out · out is the weighted mean of a query's gradients of its
// attention weights (Dao et al. 2022, §B.4).
#pragma once

#include "models/ops/attention.hpp"
#include "models/ops/cuda_vector.cuh"
#include "models/ops/philox.cuh"

#include <cstddef>
#include <cstdint>

namespace ranvier::models::cuda {

/// Numbers begin … end-1.
struct Range {
  int begin = 0, end = 0;

  [[nodiscard]] __device__ bool has(int i) const { return begin <= i && i < end; }
};

struct AttentionArguments {
  int B = 0, T = 0, H = 0, K = 0, D = 0;
  bool causal = true;
  int window = 0;
  AttentionBounds bounds;
  bool wide = false;  ///< every row of a head starts at a multiple of 16 bytes and is a multiple of 16 bytes long
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
  /// Query heads of all samples.
  [[nodiscard]] std::size_t heads() const { return static_cast<std::size_t>(B) * static_cast<std::size_t>(H); }
  [[nodiscard]] std::size_t key_heads() const { return static_cast<std::size_t>(B) * static_cast<std::size_t>(K); }
  /// Query heads per key head.
  [[nodiscard]] __device__ int sharing() const { return H / K; }

  /// Whether masks go beyond plain causality: a template parameter of kernels.
  [[nodiscard]] bool masked() const { return !causal || window > 0 || bounds.any(); }

  /// First row of a head in an array [B, T, (H + 2K)·D]. `which`: 0 queries, 1 keys, 2 values; h counts within each.
  template <typename T>
  [[nodiscard]] __device__ T* of_three(T* array, int b, int h, int which) const {
    const int head = which == 0 ? h : H + (which - 1) * K + h;
    return array + static_cast<std::size_t>(b) * static_cast<std::size_t>(this->T) * row() +
           static_cast<std::size_t>(head) * static_cast<std::size_t>(D);
  }
  /// First row of a head in an array [B, T, C].
  template <typename T>
  [[nodiscard]] __device__ T* of_one(T* array, int b, int h) const {
    return array + static_cast<std::size_t>(b) * static_cast<std::size_t>(this->T) * C() +
           static_cast<std::size_t>(h) * static_cast<std::size_t>(D);
  }
  /// First element of a head in an array [B, H, T].
  [[nodiscard]] __device__ float* of_rows(float* array, int b, int h) const {
    return array + (static_cast<std::size_t>(b) * static_cast<std::size_t>(H) + static_cast<std::size_t>(h)) *
                       static_cast<std::size_t>(T);
  }

  /// Keys visible to position i, clamped to T - 1. Position i is always included.
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
  /// Queries that attend to key j, clamped to T - 1. Needs bounds that do not decrease.
  [[nodiscard]] __device__ Range queries_of(int b, int j) const {
    if (j >= T) j = T - 1;
    Range queries{j, j + 1};
    // Binary search for the first and the last query whose range includes j.
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

  /// Number of weight (i, j) within a sample, which selects its dropout bits.
  [[nodiscard]] __device__ std::uint64_t element(int h, int i, int j) const {
    return (static_cast<std::uint64_t>(h) * static_cast<std::uint64_t>(T) + static_cast<std::uint64_t>(i)) *
               static_cast<std::uint64_t>(T) +
           static_cast<std::uint64_t>(j);
  }
};

/// Launches a row of blocks for each of `heads`, and a column for each `rows` rows of T.
inline void launch_heads(const char* name, cudaStream_t queue, void (*kernel)(AttentionArguments),
                         const AttentionArguments& arrays, std::size_t heads, int rows, int threads,
                         std::size_t shared_bytes) {
  // Set at every launch, because it is a setting of the current GPU.
  runtime::cuda::check(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)),
      "cudaFuncSetAttribute");
  const dim3 grid(blocks_of(heads, 1),
                  blocks_down(static_cast<std::size_t>(arrays.T), static_cast<std::size_t>(rows)));
  runtime::cuda::launch(name, queue, {grid, static_cast<unsigned>(threads), shared_bytes}, kernel, arrays);
}

/// Kernels for tensor cores: bf16 and f16, heads of up to 128 channels.
inline constexpr int tensor_attention_channels = 128;
void tensor_attention_forward(cudaStream_t queue, runtime::DType dtype, const AttentionArguments& arrays);
void tensor_attention_backward(cudaStream_t queue, runtime::DType dtype, const AttentionArguments& arrays);

/// Kernels that compute in float: every type, heads of up to 256 channels.
inline constexpr int plain_attention_channels = 256;
void plain_attention_forward(cudaStream_t queue, runtime::DType dtype, const AttentionArguments& arrays);
void plain_attention_backward(cudaStream_t queue, runtime::DType dtype, const AttentionArguments& arrays);

}  // namespace ranvier::models::cuda

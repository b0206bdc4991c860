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

struct AttentionArrays {
  int B = 0, T = 0, H = 0, D = 0;
  bool wide = false;  ///< every row of a head begins on 16 bytes, and has a multiple of them
  DropoutRule dropout;
  float scale = 0;  ///< 1/√D

  const void* qkv = nullptr;    ///< [B, T, 3C]
  void* out = nullptr;          ///< [B, T, C]
  float* logsumexp = nullptr;   ///< [B, H, T]
  const void* d_out = nullptr;  ///< [B, T, C]
  void* d_qkv = nullptr;        ///< [B, T, 3C]
  float* delta = nullptr;       ///< [B, H, T]

  [[nodiscard]] __host__ __device__ std::size_t C() const {
    return static_cast<std::size_t>(H) * static_cast<std::size_t>(D);
  }
  /// Of all samples.
  [[nodiscard]] std::size_t heads() const { return static_cast<std::size_t>(B) * static_cast<std::size_t>(H); }

  /// First row of a head in an array [B, T, 3C]; `which` is 0 for queries, 1 for keys, 2 for values.
  template <typename T>
  [[nodiscard]] __device__ T* of_three(T* array, int b, int h, int which) const {
    return array + static_cast<std::size_t>(b) * static_cast<std::size_t>(this->T) * 3 * C() +
           static_cast<std::size_t>(which) * C() + static_cast<std::size_t>(h) * static_cast<std::size_t>(D);
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

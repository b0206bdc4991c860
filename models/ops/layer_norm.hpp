// Layer normalization over the channels of each row: y = (x - mean)·rstd·weight + bias, rstd = 1/√(var + eps).
//
// Letters: N rows, C channels. Arrays are [N, C], and weight and bias [C], of the run's dtype; mean and rstd are [N]
// float. A row's result does not depend on other rows.
#pragma once

#include "runtime/base/dtype.hpp"
#include "runtime/device/stream.hpp"

#include <cstddef>

namespace ranvier::models {

struct LayerNormShape {
  std::size_t rows = 0;      ///< N
  std::size_t channels = 0;  ///< C
  float epsilon = 1e-5f;     ///< eps
};

struct LayerNormForward {
  void* y = nullptr;
  float* mean = nullptr;
  float* rstd = nullptr;
  const void* x = nullptr;
  const void* weight = nullptr;
  const void* bias = nullptr;
  const void* branch = nullptr;  ///< if given, x + branch is rounded, stored and normalized
  void* sum = nullptr;           ///< destination of x + branch, required with a branch; may be the branch
};
void layer_norm_forward(runtime::StreamView stream, const LayerNormShape& shape, runtime::DType dtype,
                        const LayerNormForward& arrays);

/// Recomputes y from the arrays that forward saved, with the same bits.
void layer_norm_again(runtime::StreamView stream, const LayerNormShape& shape, runtime::DType dtype, void* y,
                      const float* mean, const float* rstd, const void* x, const void* weight, const void* bias);

struct LayerNormBackward {
  void* dx = nullptr;
  float* sums = nullptr;  ///< [2, C]: gradients of weight and bias
  const void* dy = nullptr;
  const void* x = nullptr;
  const float* mean = nullptr;
  const float* rstd = nullptr;
  const void* weight = nullptr;
  const void* residual = nullptr;  ///< gradient of the residual connection, added to dx if given
  std::byte* workspace = nullptr;
};
/// Rows whose sums are added first.
inline constexpr int layer_norm_block_rows = 32;
[[nodiscard]] std::size_t layer_norm_workspace_bytes(const LayerNormShape& shape);

/// Sums over rows run over fixed blocks of rows, then over the blocks in order: the same for any number of threads.
void layer_norm_backward(runtime::StreamView stream, const LayerNormShape& shape, runtime::DType dtype,
                         const LayerNormBackward& arrays);

/// gradient[i] (+)= sums[i], rounded once. For small parameters whose gradients are summed separately in float.
void store_gradient(runtime::StreamView stream, void* gradient, runtime::DType dtype, const float* sums,
                    std::size_t n, bool accumulate);

// GPU kernels.
decltype(layer_norm_forward) layer_norm_forward_cuda;
decltype(layer_norm_again) layer_norm_again_cuda;
decltype(layer_norm_backward) layer_norm_backward_cuda;
decltype(store_gradient) store_gradient_cuda;

}  // namespace ranvier::models

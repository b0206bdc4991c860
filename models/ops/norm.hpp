// Normalization over the channels of each row. With mean and variance of the channels:
//
//   LayerNorm  y = (x - mean)·rstd·weight + bias, rstd = 1/√(variance + eps)
//   RMSNorm    y = x·rstd·weight, rstd = 1/√(mean of x² + eps) (Zhang and Sennrich 2019)
//
// A row may consist of groups (heads of queries and keys), normalized separately with the same weight. Letters: N rows,
// G groups per row, C channels per group. A group's result does not depend on other groups.
#pragma once

#include "runtime/base/dtype.hpp"
#include "runtime/device/stream.hpp"

#include <cstddef>

namespace ranvier::models {

enum class NormKind { layer, rms };

struct NormShape {
  std::size_t rows = 0;      ///< N
  std::size_t channels = 0;  ///< C
  float epsilon = 1e-5f;     ///< eps
  NormKind kind = NormKind::layer;
  std::size_t groups = 1;  ///< G; groups and strides need RMSNorm

  // Elements per row, if the groups are part of wider rows; 0: rows have no gaps.
  std::size_t x_stride = 0;
  std::size_t y_stride = 0;  ///< for y, and for the gradients of x and y

  [[nodiscard]] std::size_t x_row() const noexcept { return x_stride != 0 ? x_stride : groups * channels; }
  [[nodiscard]] std::size_t y_row() const noexcept { return y_stride != 0 ? y_stride : groups * channels; }
  /// Elements of weight and bias.
  [[nodiscard]] std::size_t parameters() const noexcept { return (kind == NormKind::layer ? 2 : 1) * channels; }
};

/// [N, G, C], and weight and bias [C], of the run's dtype; mean and rstd are [N, G] float. RMSNorm ignores mean
/// and bias.
struct NormForward {
  void* y = nullptr;  ///< may be x, if both have the same row stride
  float* mean = nullptr;
  float* rstd = nullptr;
  const void* x = nullptr;
  const void* weight = nullptr;
  const void* bias = nullptr;
  const void* branch = nullptr;  ///< if given, x + branch is rounded, stored and normalized
  void* sum = nullptr;  ///< x + branch, required with a branch; may be the branch; both have x's row stride
  /// Recomputes y with the same bits: reads mean and rstd. Without a branch: x is forward's sum if it had one.
  bool again = false;
};
void norm_forward(runtime::StreamView stream, const NormShape& shape, runtime::DType dtype,
                  const NormForward& arrays);

struct NormBackward {
  void* dx = nullptr;     ///< may be dy
  float* sums = nullptr;  ///< [2, C]: gradients of weight and bias; RMSNorm [C]
  const void* dy = nullptr;
  const void* x = nullptr;
  const float* mean = nullptr;
  const float* rstd = nullptr;
  const void* weight = nullptr;
  const void* residual = nullptr;  ///< gradient of the residual connection, added to dx if given
  std::byte* workspace = nullptr;
};
/// Groups whose sums are added first.
inline constexpr int norm_block_groups = 32;
[[nodiscard]] std::size_t norm_workspace_bytes(const NormShape& shape);

/// Sums over rows run over fixed blocks of groups, then over the blocks in order: the same for any number of threads.
void norm_backward(runtime::StreamView stream, const NormShape& shape, runtime::DType dtype,
                   const NormBackward& arrays);

/// gradient[i] (+)= sums[i], rounded once. For small parameters whose gradients are summed separately in float.
void store_gradient(runtime::StreamView stream, void* gradient, runtime::DType dtype, const float* sums,
                    std::size_t n, bool accumulate);

// GPU kernels.
decltype(norm_forward) norm_forward_cuda;
decltype(norm_backward) norm_backward_cuda;
decltype(store_gradient) store_gradient_cuda;

}  // namespace ranvier::models

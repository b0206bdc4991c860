// Root-mean-square normalization (Zhang and Sennrich 2019) over the channels of each row: y = x·rstd·weight, rstd =
// 1/√(mean of x² + eps). A row may consist of groups (heads of queries and keys), normalized separately with the same
// weight.
//
// Letters: N rows, G groups per row, C channels per group. Arrays are [N, G, C], and weight [C], of the run's dtype;
// rstd is [N, G] float. A group's result does not depend on other groups.
#pragma once

#include "runtime/base/dtype.hpp"
#include "runtime/device/stream.hpp"

#include <cstddef>

namespace ranvier::models {

struct RmsNormShape {
  std::size_t rows = 0;      ///< N
  std::size_t channels = 0;  ///< C
  float epsilon = 1e-5f;
  std::size_t groups = 1;  ///< G

  // Elements per row, if the groups are part of wider rows; 0: rows have no gaps.
  std::size_t x_stride = 0;
  std::size_t y_stride = 0;  ///< for y, and for the gradients of x and y

  [[nodiscard]] std::size_t x_row() const noexcept { return x_stride != 0 ? x_stride : groups * channels; }
  [[nodiscard]] std::size_t y_row() const noexcept { return y_stride != 0 ? y_stride : groups * channels; }
};

struct RmsNormForward {
  void* y = nullptr;  ///< may be x, if both have the same row stride
  float* rstd = nullptr;
  const void* x = nullptr;
  const void* weight = nullptr;
  const void* branch = nullptr;  ///< if given, x + branch is rounded, stored and normalized
  void* sum = nullptr;           ///< destination of x + branch; branch and sum have x's row stride
};
void rms_norm_forward(runtime::StreamView stream, const RmsNormShape& shape, runtime::DType dtype,
                      const RmsNormForward& arrays);

/// Recomputes y from the arrays that forward saved, with the same bits.
void rms_norm_again(runtime::StreamView stream, const RmsNormShape& shape, runtime::DType dtype, void* y,
                    const float* rstd, const void* x, const void* weight);

struct RmsNormBackward {
  void* dx = nullptr;            ///< may be dy
  float* weight_sums = nullptr;  ///< [C]: gradient of weight
  const void* dy = nullptr;
  const void* x = nullptr;
  const float* rstd = nullptr;
  const void* weight = nullptr;
  const void* residual = nullptr;  ///< gradient of the residual connection, added to dx if given
  std::byte* workspace = nullptr;
};
/// Groups whose sums are added first.
inline constexpr int rms_norm_block_groups = 32;
[[nodiscard]] std::size_t rms_norm_workspace_bytes(const RmsNormShape& shape);

/// Sums over rows run over fixed blocks of groups, then over the blocks in order: the same for any number of threads.
void rms_norm_backward(runtime::StreamView stream, const RmsNormShape& shape, runtime::DType dtype,
                       const RmsNormBackward& arrays);

// GPU kernels.
decltype(rms_norm_forward) rms_norm_forward_cuda;
decltype(rms_norm_again) rms_norm_again_cuda;
decltype(rms_norm_backward) rms_norm_backward_cuda;

}  // namespace ranvier::models

// Batch normalization (Ioffe and Szegedy 2015) per channel, with the operations that follow it in residual networks:
// y = relu((x - mean) · rstd · weight + bias + addend). Addend and ReLU are optional. Mean and variance are fixed, or
// computed from all positions. NaN stays NaN.
//
// Letters: N positions (pixels of all samples of a microbatch), C channels. Arrays are [N, C] of the run's dtype,
// weight and bias [C]; statistics are [3, C] float: mean, variance (over N, not N - 1), rstd = 1/√(variance + eps).
#pragma once

#include "runtime/base/dtype.hpp"
#include "runtime/device/stream.hpp"

#include <cstddef>

namespace ranvier::models {

struct BatchNormShape {
  std::size_t rows = 0;      ///< N, positions
  std::size_t channels = 0;  ///< C
  float epsilon = 1e-5f;
};

/// Workspace of the functions that take one.
[[nodiscard]] std::size_t batch_norm_workspace_bytes(const BatchNormShape& shape);

/// Computes the statistics of x. Sums run over fixed blocks of positions, then over the blocks in order, in double:
/// the same for any number of threads. A second pass sums squared differences from the mean.
void batch_norm_statistics(runtime::StreamView stream, const BatchNormShape& shape, runtime::DType dtype,
                           float* statistics, const void* x, std::byte* workspace);
/// Converts given mean[C] and variance[C], in the run's dtype.
void batch_norm_fixed_statistics(runtime::StreamView stream, const BatchNormShape& shape, runtime::DType dtype,
                                 float* statistics, const void* mean, const void* variance);

/// Inputs of the forward pass.
struct BatchNormValues {
  const void* x = nullptr;
  const float* statistics = nullptr;
  const void* weight = nullptr;
  const void* bias = nullptr;
  const void* addend = nullptr;  ///< null: no addend
  bool relu = false;
};
void batch_norm_forward(runtime::StreamView stream, const BatchNormShape& shape, runtime::DType dtype, void* y,
                        const BatchNormValues& values);

struct BatchNormBackward {
  void* dx = nullptr;        ///< may be dy
  void* d_addend = nullptr;  ///< null: not needed; must not be dy
  float* sums = nullptr;     ///< [2, C]: gradients of weight and bias
  const void* dy = nullptr;  ///< ignored if ReLU's output is zero
  bool fixed = false;        ///< the statistics do not depend on x
  std::byte* workspace = nullptr;
};
/// Sums run in the same order as the statistics.
void batch_norm_backward(runtime::StreamView stream, const BatchNormShape& shape, runtime::DType dtype,
                         const BatchNormBackward& arrays, const BatchNormValues& values);

// GPU kernels.
decltype(batch_norm_statistics) batch_norm_statistics_cuda;
decltype(batch_norm_fixed_statistics) batch_norm_fixed_statistics_cuda;
decltype(batch_norm_forward) batch_norm_forward_cuda;
decltype(batch_norm_backward) batch_norm_backward_cuda;

/// Positions summed in float before the sum continues in double.
inline constexpr std::size_t batch_norm_block_rows = 64;

}  // namespace ranvier::models

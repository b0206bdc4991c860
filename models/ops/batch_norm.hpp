// Batch normalisation (Ioffe and Szegedy 2015) of rows, channel by channel, with what follows it in residual
// networks: y = relu((x - mean) · rstd · weight + bias + addend), where addend and relu may be left out. Mean and
// variance are those of the rows, or fixed ones. NaN stays NaN.
//
// Letters: N rows (of all samples of a microbatch), C channels. Arrays are [N, C] of the run's dtype, weight and bias
// [C] of the same, statistics [3, C] float: mean, variance (over N, not N - 1), rstd = 1/√(variance + eps).
#pragma once

#include "models/ops/backends.hpp"
#include "runtime/dtype.hpp"
#include "runtime/stream.hpp"

#include <cstddef>

namespace ranvier::models {

struct BatchNormShape {
  std::size_t rows = 0;      ///< N
  std::size_t channels = 0;  ///< C
  float epsilon = 1e-5f;
};

/// For those below that take one.
[[nodiscard]] std::size_t batch_norm_workspace_bytes(const BatchNormShape& shape);

/// Of the rows of x. Sums go by fixed blocks of rows, then over the blocks in order, in double: the same for any
/// threads. The variance is that of the differences from the mean, in a second pass.
void batch_norm_statistics(runtime::StreamView stream, const BatchNormShape& shape, runtime::DType dtype,
                           float* statistics, const void* x, std::byte* workspace);
/// From mean[C] and variance[C] that are given, in the run's dtype.
void batch_norm_fixed_statistics(runtime::StreamView stream, const BatchNormShape& shape, runtime::DType dtype,
                                 float* statistics, const void* mean, const void* variance);

/// What is computed of x.
struct BatchNormValues {
  const void* x = nullptr;
  const float* statistics = nullptr;
  const void* weight = nullptr;
  const void* bias = nullptr;
  const void* addend = nullptr;  ///< null: none
  bool relu = false;
};
void batch_norm_forward(runtime::StreamView stream, const BatchNormShape& shape, runtime::DType dtype, void* y,
                        const BatchNormValues& values);

struct BatchNormBackward {
  void* dx = nullptr;        ///< may be dy
  void* d_addend = nullptr;  ///< null: not asked for; not dy
  float* sums = nullptr;     ///< [2, C]: the gradients of weight and of bias
  const void* dy = nullptr;  ///< where y is relu's zero it counts nothing
  bool fixed = false;        ///< the statistics do not depend on x
  std::byte* workspace = nullptr;
};
/// Sums as those of the statistics.
void batch_norm_backward(runtime::StreamView stream, const BatchNormShape& shape, runtime::DType dtype,
                         const BatchNormBackward& arrays, const BatchNormValues& values);

// Their kernels.
OnCpu<decltype(batch_norm_statistics)> batch_norm_statistics_cpu;
OnCuda<decltype(batch_norm_statistics)> batch_norm_statistics_cuda;
OnCpu<decltype(batch_norm_fixed_statistics)> batch_norm_fixed_statistics_cpu;
OnCuda<decltype(batch_norm_fixed_statistics)> batch_norm_fixed_statistics_cuda;
OnCpu<decltype(batch_norm_forward)> batch_norm_forward_cpu;
OnCuda<decltype(batch_norm_forward)> batch_norm_forward_cuda;
OnCpu<decltype(batch_norm_backward)> batch_norm_backward_cpu;
OnCuda<decltype(batch_norm_backward)> batch_norm_backward_cuda;

/// Rows that are summed in float before double.
inline constexpr std::size_t batch_norm_block_rows = 64;

}  // namespace ranvier::models

// Cross entropy per row: -ln softmax(logits)[target]; zero for a row without a target.
//
// Letters: N rows, V vocabulary.
#pragma once

#include "runtime/base/dtype.hpp"
#include "runtime/device/stream.hpp"

#include <cstddef>
#include <cstdint>

namespace ranvier::models {

/// Replaces a target if the row has no loss and a gradient of zero.
inline constexpr std::int32_t no_target = -1;

struct CrossEntropyShape {
  std::size_t rows = 0;        ///< N
  std::size_t vocab_size = 0;  ///< V
  std::size_t stride = 0;      ///< stored logits per row, at least V; those past V are ignored
};

struct CrossEntropyArrays {
  void* logits = nullptr;                 ///< [N, stride]
  const std::int32_t* targets = nullptr;  ///< [N], each a token or no_target
  double* loss = nullptr;                 ///< = loss_factor · Σ of the rows' losses
  double loss_factor = 1;
  bool gradient = false;          ///< whether logits are replaced by the gradient of the rows' losses, times …
  float gradient_factor = 1;      ///< … this
  double* row_losses = nullptr;   ///< workspace [N]
  float* exponentials = nullptr;  ///< workspace [threads of the device, stride]
};

/// Computes row by row in float, and sums in order in double. The stream fails with ErrorCode::data on a target outside
/// [0, V) that is not no_target. For a mean, the caller divides by the number of targets in loss_factor and
/// gradient_factor.
void cross_entropy(runtime::StreamView stream, const CrossEntropyShape& shape, runtime::DType dtype,
                   const CrossEntropyArrays& arrays);

/// *correct = number of the N rows whose greatest logit (the first, if several are equal) is the target's. Not counted:
/// rows without a target (no_target), with a target outside [0, V), or whose target has the logit NaN. `correct` may be
/// in pinned memory.
void count_correct(runtime::StreamView stream, const CrossEntropyShape& shape, runtime::DType dtype,
                   double* correct, const void* logits, const std::int32_t* targets);

// GPU kernels. Cross entropy needs no `exponentials`. It reads the logits once; for the gradient, it reads them twice
// and writes them once.
decltype(cross_entropy) cross_entropy_cuda;
decltype(count_correct) count_correct_cuda;

}  // namespace ranvier::models

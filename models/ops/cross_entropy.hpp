// The loss of a language model: per row, -ln softmax(logits)[target]; nothing for a row without a target.
//
// Letters: N rows, V vocabulary.
#pragma once

#include "models/ops/backends.hpp"
#include "runtime/dtype.hpp"
#include "runtime/stream.hpp"

#include <cstddef>
#include <cstdint>

namespace ranvier::models {

/// In place of a row's target: the row has no loss, and a gradient of zero.
inline constexpr std::int32_t no_target = -1;

struct CrossEntropyShape {
  std::size_t rows = 0;        ///< N
  std::size_t vocab_size = 0;  ///< V
  std::size_t stride = 0;      ///< stored logits of a row, at least V; those past V take no part
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

/// Rows are computed one by one, in float, and summed in order in double. The stream fails with
/// ErrorCode::data on a target outside [0, V) that is not no_target. A mean over the targets takes their number from
/// the caller, in loss_factor and gradient_factor.
void cross_entropy(runtime::StreamView stream, const CrossEntropyShape& shape, runtime::DType dtype,
                   const CrossEntropyArrays& arrays);

// Its kernels. On a GPU it needs no `exponentials`, and reads the logits once, or twice and writes them
// once for the gradient.
OnCpu<decltype(cross_entropy)> cross_entropy_cpu;
OnCuda<decltype(cross_entropy)> cross_entropy_cuda;

}  // namespace ranvier::models

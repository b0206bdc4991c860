// The loss of a language model: per row, -ln softmax(logits)[target].
//
// Letters: N rows, V vocabulary.
#pragma once

#include "runtime/dtype.hpp"
#include "runtime/stream.hpp"

#include <cstddef>
#include <cstdint>

namespace ranvier::models {

struct CrossEntropyShape {
  std::size_t rows = 0;        ///< N
  std::size_t vocab_size = 0;  ///< V
  std::size_t stride = 0;      ///< stored logits of a row, at least V; those past V take no part
};

struct CrossEntropyArrays {
  void* logits = nullptr;                 ///< [N, stride]
  const std::int32_t* targets = nullptr;  ///< [N]
  double* loss = nullptr;                 ///< = loss_factor · Σ of the rows' losses
  double loss_factor = 1;
  bool gradient = false;          ///< whether logits are replaced by the gradient of the rows' losses, times …
  float gradient_factor = 1;      ///< … this
  double* row_losses = nullptr;   ///< workspace [N]
  float* exponentials = nullptr;  ///< workspace [threads of the device, stride]
};

/// Rows are computed one by one, in float, and summed in order in double. The stream fails with
/// ErrorCode::data on a target outside [0, V).
void cross_entropy(runtime::StreamView stream, const CrossEntropyShape& shape, runtime::DType dtype,
                   const CrossEntropyArrays& arrays);

}  // namespace ranvier::models

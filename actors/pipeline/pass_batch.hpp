// Parameters of a batch's passes, and the division of a row's samples into microbatches. Any thread.
#pragma once

#include "models/core/stage.hpp"
#include "runtime/base/arithmetic.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>

namespace ranvier::actors {

/// A row's share of a batch.
struct PassBatch {
  std::int64_t step = 0;
  std::uint64_t seed = 0;
  std::int64_t first_sample = 0;  ///< global number of the row's first sample
  int samples = 0;                ///< samples of the row; the last microbatch may be shorter
  bool training = true;           ///< false: forward passes only
  double loss_factor = 1;
  float loss_scale = 1;
  // Without training:
  std::optional<int>
      counted;        ///< number of first samples that count for the loss; none: all. All rows run the same
                      ///< number of microbatches; a microbatch without counted samples runs one other sample
  int positions = 0;  ///< positions per sample, as in the loader's source; 0: as planned
  models::EvalOutputs
      details;  ///< outputs of the last stage: losses of all samples, logits of the first; with `positions`

  [[nodiscard]] int microbatches(int microbatch_size) const {
    return runtime::ceil_divide(samples, microbatch_size);
  }
  /// Number of samples of a microbatch that count for the loss.
  [[nodiscard]] int counted_of(int microbatch, int microbatch_size) const {
    return std::clamp(counted.value_or(samples) - microbatch * microbatch_size, 0, microbatch_size);
  }
  [[nodiscard]] int samples_of(int microbatch, int microbatch_size) const {
    return std::max(counted_of(microbatch, microbatch_size), 1);
  }
};

}  // namespace ranvier::actors

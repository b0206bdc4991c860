// What the passes of a batch are told, and how a row's samples are cut into microbatches. Any thread.
#pragma once

#include "models/stage.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>

namespace ranvier::actors {

/// A row's share of a batch.
struct PassBatch {
  std::int64_t step = 0;
  std::uint64_t seed = 0;
  std::int64_t first_sample = 0;  ///< number of the row's first sample within all steps
  int samples = 0;                ///< of the row; cut into microbatches, of which the last may be shorter
  bool training = true;           ///< false: forward passes only
  double loss_factor = 1;
  float loss_scale = 1;
  // Without training:
  std::optional<int> counted;  ///< samples, from the first on, that the loss is of; none: all. Rows run the same
                               ///< number of microbatches; one with no such sample has another in its place
  int positions = 0;           ///< of every sample, as many as the loader's source gives; 0: as many as are planned
  models::EvalOutputs details;  ///< on the last stage: losses of all samples, logits of the first; with `positions`

  [[nodiscard]] int microbatches(int microbatch_size) const {
    return (samples + microbatch_size - 1) / microbatch_size;
  }
  /// Of samples_of(), those that count.
  [[nodiscard]] int counted_of(int microbatch, int microbatch_size) const {
    return std::clamp(counted.value_or(samples) - microbatch * microbatch_size, 0, microbatch_size);
  }
  [[nodiscard]] int samples_of(int microbatch, int microbatch_size) const {
    return std::max(counted_of(microbatch, microbatch_size), 1);
  }
};

}  // namespace ranvier::actors

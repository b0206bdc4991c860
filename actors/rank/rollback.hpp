// Data that a run passes to its successor in a rollback to a checkpoint.
#pragma once

#include "models/core/filtered_samples.hpp"

#include <cstdint>
#include <vector>

namespace ranvier::actors {

struct Rollback {
  std::int64_t newest_step = 0;  ///< newest step to resume from; later checkpoints may contain the bad update
  std::vector<models::SampleRange> left_out;  ///< dropped samples
  // The current row of bad steps; see bad_steps.hpp.
  std::int64_t last_bad = 0;
  std::int64_t bad_in_a_row = 0;
};

}  // namespace ranvier::actors

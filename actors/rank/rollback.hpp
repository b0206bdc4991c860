// What a training that goes back to a checkpoint hands to the one that goes on from there, as data.
#pragma once

#include "models/filtered_samples.hpp"

#include <cstdint>
#include <vector>

namespace ranvier::actors {

struct Rollback {
  std::int64_t newest_step = 0;  ///< of the checkpoints to go on from: later ones may have what it flees from
  std::vector<models::SampleRange> left_out;  ///< samples of the source that no step takes any more
  // A row of bad steps goes on; see bad_steps.hpp.
  std::int64_t last_bad = 0;
  std::int64_t bad_in_a_row = 0;
};

}  // namespace ranvier::actors

// How a model writes text while it trains; see sample_writer.hpp.
#pragma once

#include "models/generation/sampler.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace ranvier::actors {

struct SampleOptions {
  std::int64_t every = 0;            ///< steps; 0: never
  std::vector<std::int32_t> prompt;  ///< at least one token
  int tokens = 64;                   ///< to draw
  models::SamplingOptions sampling;
  std::optional<std::int32_t> end_of_text;  ///< the token after which nothing is drawn
};

}  // namespace ranvier::actors

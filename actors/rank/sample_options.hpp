// Options of text samples during training; see sample_writer.hpp.
#pragma once

#include "models/generation/sampler.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace ranvier::actors {

struct SampleOptions {
  std::int64_t every = 0;            ///< steps between samples; 0: never
  std::vector<std::int32_t> prompt;  ///< at least one token
  int tokens = 64;                   ///< maximum number of tokens to sample
  models::SamplingOptions sampling;
  std::optional<std::int32_t> end_of_text;  ///< token that ends a sample
};

}  // namespace ranvier::actors

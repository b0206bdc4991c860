// Where some elements of a state lie, on the device, in host memory or in files.
#pragma once

#include "offload/tiers.hpp"

#include <cstddef>

namespace ranvier::actors {

struct StatePlace {
  const std::byte* memory = nullptr;  ///< null: in files
  offload::TierRegion region;         ///< there, and in bytes from its begin on
  std::size_t offset = 0;
};

}  // namespace ranvier::actors

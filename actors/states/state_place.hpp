// Location of elements of a state: device memory, host memory or files.
#pragma once

#include "offload/tiers.hpp"

#include <cstddef>

namespace ranvier::actors {

struct StatePlace {
  const std::byte* memory = nullptr;  ///< null: in files
  offload::TierRegion region;         ///< region in files; `offset` is in bytes from its start
  std::size_t offset = 0;
};

}  // namespace ranvier::actors

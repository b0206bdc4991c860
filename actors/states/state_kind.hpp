// Kinds of state arrays of a unit.
#pragma once

#include "offload/tiers.hpp"

#include <cstddef>

namespace ranvier::actors {

enum class StateKind {
  parameters,  ///< as layers read them
  weights,     ///< separate master weights
  m,           ///< AdamW's moments
  v,
};

[[nodiscard]] constexpr const char* to_string(StateKind array) noexcept {
  switch (array) {
    case StateKind::parameters:
      return "parameters";
    case StateKind::weights:
      return "weights";
    case StateKind::m:
      return "m";
    case StateKind::v:
      return "v";
  }
  return "?";
}

/// Location of elements of a state: device memory, host memory or files.
struct StatePlace {
  const std::byte* memory = nullptr;  ///< null: in files
  offload::TierRegion region;         ///< region in files; `offset` is in bytes from its start
  std::size_t offset = 0;
};

}  // namespace ranvier::actors

// What frozen parameters pass through on their way to weights files: they have no copy in fp32 that could be read as it
// is. Planned with the rest and taken before the first step, since nothing pinned may be while others run.
#pragma once

#include "offload/tiers.hpp"

#include <cstddef>

namespace ranvier::actors {

struct FrozenValues {
  static constexpr std::size_t value_bytes = std::size_t{256} << 10;  ///< at a time
  /// What comes from files may begin and end within a block of theirs.
  static constexpr std::size_t block_bytes = value_bytes + 2 * offload::Tier::block_bytes;
  static constexpr std::size_t bytes = value_bytes + block_bytes;
};

}  // namespace ranvier::actors

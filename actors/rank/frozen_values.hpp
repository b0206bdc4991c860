// Pinned staging of frozen parameters for weights files, which need them in fp32. It is allocated before the first
// step, because nothing may be pinned later.
#pragma once

#include "offload/tiers.hpp"

#include <cstddef>

namespace ranvier::actors {

struct FrozenValues {
  static constexpr std::size_t value_bytes = std::size_t{256} << 10;  ///< bytes per read
  /// Ranges in files may start and end within a file block.
  static constexpr std::size_t block_bytes = value_bytes + 2 * offload::Tier::block_bytes;
  static constexpr std::size_t bytes = value_bytes + block_bytes;
};

}  // namespace ranvier::actors

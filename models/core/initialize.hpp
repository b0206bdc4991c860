// Initial values of parameters, drawn by counter from seed, tensor name and element index: the same on any grid,
// stage and shard, and for any tiles.
#pragma once

#include "models/core/layer.hpp"

#include <cstddef>
#include <cstdint>

namespace ranvier::runtime {
class ComputePool;
}

namespace ranvier::models {

/// to[i] = initial value of the unit's element begin + i, for begin <= begin + i < end <= unit.elements(); gaps and
/// padding are zero. Host memory; any thread, several at a time; uses the threads of a pool if given.
void initialize(const UnitSpec& unit, std::uint64_t seed, std::size_t begin, std::size_t end, float* to,
                runtime::ComputePool* pool = nullptr);

}  // namespace ranvier::models

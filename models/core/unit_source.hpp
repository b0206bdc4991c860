// Source of unit values: files, checkpoints, counters. Any thread, unless a source restricts it.
#pragma once

#include "models/core/layer.hpp"

#include <cstddef>
#include <functional>
#include <span>

namespace ranvier::models {

/// Writes elements [begin, begin + out.size()) of a flattened unit, gaps and padding as zeros.
using UnitSource = std::function<void(const UnitSpec& unit, std::size_t begin, std::span<float> out)>;

}  // namespace ranvier::models

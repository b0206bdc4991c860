// Balances layers over the slices (model chunks) of a pipeline. Pure; any thread.
#pragma once

#include "models/core/architecture.hpp"

#include <cstddef>
#include <vector>

namespace ranvier::actors {

/// Throws ErrorCode::usage unless a model with `layers` layers can be cut into these slices.
void check_slices(const SliceMap& map, std::size_t layers);

/// Returns non-empty slices. One slice per rank: models::balance(). Several: starts from models::balance() and shifts
/// single layers away from the rank with the highest total cost while that lowers the maximum over ranks, then the
/// largest slice. `slowness`: slowdown factor by stage, for several slices per rank; empty: all equal. Throws
/// ErrorCode::usage if there are fewer layers than slices.
[[nodiscard]] std::vector<models::LayerRange> balance_slices(const std::vector<double>& costs, const SliceMap& map,
                                                             const std::vector<double>& slowness = {});

}  // namespace ranvier::actors

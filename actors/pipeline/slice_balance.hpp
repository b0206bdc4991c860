// The cut of layers into the slices of a pipeline whose ranks may have several each. Pure; any thread.
#pragma once

#include "actors/pipeline/slice_map.hpp"
#include "models/architecture.hpp"

#include <vector>

namespace ranvier::actors {

/// Non-empty slices of layers of these costs. With one per rank models::balance()'s. With several a rank computes all
/// of its own, so that the rank with the most of that matters first, and the largest slice after it: from
/// models::balance() on, as long as that helps, a layer moves from a slice of the rank with the most to another one,
/// and those between them move by one. `slowness`, of several slices per rank: how many times its cost a layer takes on
/// each stage's ranks; empty: they are alike. Throws ErrorCode::usage if there are fewer layers than slices.
[[nodiscard]] std::vector<models::LayerRange> balance_slices(const std::vector<double>& costs, const SliceMap& map,
                                                             const std::vector<double>& slowness = {});

}  // namespace ranvier::actors

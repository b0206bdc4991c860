// Hierarchical collectives (MiCS §3.3). The all-gather runs across the nodes, in parallel for each local rank, and then
// inside the nodes. Data inside a node is contiguous, so nothing is reordered. Both phases use doubling
// (recursive.hpp). The reduce-scatter runs backwards: halving inside each node, then across the nodes. README.md has
// the costs.
#pragma once

#include "collectives/plans/plan.hpp"
#include "collectives/plans/topology.hpp"

namespace ranvier::collectives {

[[nodiscard]] Plan hierarchical_all_gather(const Topology& topology, std::size_t elements, int chunks = 1,
                                           int chunk = 0, int only = every_rank);
[[nodiscard]] Plan hierarchical_reduce_scatter(const Topology& topology, std::size_t elements, int chunks = 1,
                                               int chunk = 0, int only = every_rank);
[[nodiscard]] Plan hierarchical_all_reduce(const Topology& topology, std::size_t elements, int chunks = 1,
                                           int chunk = 0, int only = every_rank);

}  // namespace ranvier::collectives

// Rings: each rank sends to the next one and receives from the previous one. README.md has the costs.
//
// The sum for rank r's piece starts at rank r+1 and ends at rank r. A single rank, or no elements: no steps.
#pragma once

#include "collectives/plans/plan.hpp"
#include "collectives/plans/topology.hpp"

namespace ranvier::collectives {

[[nodiscard]] Plan ring_reduce_scatter(const Topology& topology, std::size_t elements, int chunks = 1,
                                       int chunk = 0, int only = every_rank);
[[nodiscard]] Plan ring_all_gather(const Topology& topology, std::size_t elements, int chunks = 1, int chunk = 0,
                                   int only = every_rank);
[[nodiscard]] Plan ring_all_reduce(const Topology& topology, std::size_t elements, int chunks = 1, int chunk = 0,
                                   int only = every_rank);

/// Rank r owns piece r.
[[nodiscard]] Plan ring_reduce_scatter(int ranks, std::size_t elements, int chunks = 1, int chunk = 0);
[[nodiscard]] Plan ring_all_gather(int ranks, std::size_t elements, int chunks = 1, int chunk = 0);
[[nodiscard]] Plan ring_all_reduce(int ranks, std::size_t elements, int chunks = 1, int chunk = 0);

}  // namespace ranvier::collectives

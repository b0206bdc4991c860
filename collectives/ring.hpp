// Rings: each rank sends to the next one and receives from the previous one. P ranks, E elements, all divisible; n
// nodes in one row each.
//
//   operation        steps     sent per rank   between nodes   out of a node
//   reduce-scatter   P - 1     E (P-1)/P       n E (P-1)/P     E (P-1)/P
//   all-gather       P - 1     E (P-1)/P       n E (P-1)/P     E (P-1)/P
//   all-reduce       2 (P-1)   2 E (P-1)/P     twice that      2 E (P-1)/P
//
// Order of the sum for rank r's piece: from rank r+1 to r. One rank or no elements: no steps.
#pragma once

#include "collectives/plan.hpp"
#include "collectives/topology.hpp"

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

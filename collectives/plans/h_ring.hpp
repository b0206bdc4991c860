// H-Ring (PaRO §3.3): rings across the nodes, then rings inside the nodes; a reduce-scatter runs in the opposite
// order. Only neighbours communicate. n nodes (rows) of k ranks, P = n k, E elements, all divisible.
//
//   operation        steps          sent per rank   between nodes   out of a node
//   all-gather       (n-1) + (k-1)  E (P-1)/P       E (n-1)         E (P-k)/P
//   reduce-scatter   (k-1) + (n-1)  E (P-1)/P       E (n-1)         E (P-k)/P
//
// Order of the sum for the piece of rank (i, o): in each node ranks i+1, i+2, …, i; then nodes o+1, o+2, …, o.
#pragma once

#include "collectives/plans/plan.hpp"
#include "collectives/plans/topology.hpp"

namespace ranvier::collectives {

[[nodiscard]] Plan h_ring_all_gather(const Topology& topology, std::size_t elements, int chunks = 1, int chunk = 0,
                                     int only = every_rank);
[[nodiscard]] Plan h_ring_reduce_scatter(const Topology& topology, std::size_t elements, int chunks = 1,
                                         int chunk = 0, int only = every_rank);

}  // namespace ranvier::collectives

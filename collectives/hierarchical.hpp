// Hierarchical all-gather (MiCS §3.3): first across the nodes, in parallel for each local rank, then inside the
// nodes. The layout makes data inside a node contiguous, so no reordering is needed. Both phases use doubling
// (recursive.hpp). A reduce-scatter runs backwards. n nodes (rows) of k ranks, P = n k, E elements, all divisible.
//
//   operation        steps                   sent per rank   between nodes   out of a node
//   all-gather       ⌈log2 n⌉ + ⌈log2 k⌉     E (P-1)/P       E (n-1)         E (P-k)/P
//   reduce-scatter   ⌈log2 k⌉ + ⌈log2 n⌉     E (P-1)/P       E (n-1)         E (P-k)/P
//   all-reduce       both                    2 E (P-1)/P     2 E (n-1)       2 E (P-k)/P
//
// Sums: halving inside each node, then across the nodes (recursive.hpp, with local ranks and then rows instead of
// pieces).
#pragma once

#include "collectives/plan.hpp"
#include "collectives/topology.hpp"

namespace ranvier::collectives {

[[nodiscard]] Plan hierarchical_all_gather(const Topology& topology, std::size_t elements, int chunks = 1,
                                           int chunk = 0, int only = every_rank);
[[nodiscard]] Plan hierarchical_reduce_scatter(const Topology& topology, std::size_t elements, int chunks = 1,
                                               int chunk = 0, int only = every_rank);
[[nodiscard]] Plan hierarchical_all_reduce(const Topology& topology, std::size_t elements, int chunks = 1,
                                           int chunk = 0, int only = every_rank);

}  // namespace ranvier::collectives

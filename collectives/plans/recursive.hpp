// Recursive doubling and halving for any number of ranks: ⌈log2 P⌉ steps, the minimum. An all-gather doubles each
// rank's range of pieces per step; a reduce-scatter runs backwards; both together are Rabenseifner's all-reduce. Ranks
// are numbered by their pieces, so for powers of two most data moves inside nodes. README.md has the costs.
//
// Order of the sum for piece p: rank at distance x has piece (p - x) modulo P. For d = the largest power of two below
// P, …, 4, 2, 1, the value at distance x + d is added to the value at distance x < d.
#pragma once

#include "collectives/plans/plan.hpp"
#include "collectives/plans/topology.hpp"

namespace ranvier::collectives {

[[nodiscard]] Plan recursive_all_gather(const Topology& topology, std::size_t elements, int chunks = 1,
                                        int chunk = 0, int only = every_rank);
[[nodiscard]] Plan recursive_reduce_scatter(const Topology& topology, std::size_t elements, int chunks = 1,
                                            int chunk = 0, int only = every_rank);
[[nodiscard]] Plan recursive_all_reduce(const Topology& topology, std::size_t elements, int chunks = 1,
                                        int chunk = 0, int only = every_rank);

// Hierarchical (MiCS §3.3): the all-gather runs across the nodes, in parallel for each local rank, and then inside the
// nodes, both by doubling. Data inside a node is contiguous, so nothing is reordered. The reduce-scatter runs
// backwards: halving inside each node, then across the nodes.
[[nodiscard]] Plan hierarchical_all_gather(const Topology& topology, std::size_t elements, int chunks = 1,
                                           int chunk = 0, int only = every_rank);
[[nodiscard]] Plan hierarchical_reduce_scatter(const Topology& topology, std::size_t elements, int chunks = 1,
                                               int chunk = 0, int only = every_rank);
[[nodiscard]] Plan hierarchical_all_reduce(const Topology& topology, std::size_t elements, int chunks = 1,
                                           int chunk = 0, int only = every_rank);

/// Binomial tree: up to rank 0 and down again, for a few elements, if latency dominates. Steps: 2 ⌈log2 P⌉. Sent per
/// rank: at most E ⌈log2 P⌉ (rank 0, on the way down). Any number of elements; not split into pieces.
[[nodiscard]] Plan tree_all_reduce(int ranks, std::size_t elements, int only = every_rank);

}  // namespace ranvier::collectives

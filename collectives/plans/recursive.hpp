// Recursive doubling and halving for any number of ranks: ⌈log2 P⌉ steps, the minimum. An all-gather doubles each
// rank's range of pieces per step; a reduce-scatter runs backwards; both together are Rabenseifner's all-reduce.
// README.md has the costs. The gathers append their steps to a plan, as in ring.hpp.
#pragma once

#include "collectives/plans/plan_builders.hpp"

namespace ranvier::collectives {

/// Ranks are numbered by their pieces, so for powers of two most data moves inside nodes.
///
/// Order of the sum for piece p: rank at distance x has piece (p - x) modulo P. For d = the largest power of two below
/// P, …, 4, 2, 1, the value at distance x + d is added to the value at distance x < d.
void recursive_gather(Plan& plan, const Topology& topology, const GatherShape& shape);

/// Hierarchical (MiCS §3.3): the all-gather runs across the nodes, in parallel for each local rank, and then inside the
/// nodes, both by doubling. Data inside a node is contiguous, so nothing is reordered. The reduce-scatter runs
/// backwards: halving inside each node, then across the nodes.
void hierarchical_gather(Plan& plan, const Topology& topology, const GatherShape& shape);

/// Binomial tree: up to rank 0 and down again, for a few elements, if latency dominates. Steps: 2 ⌈log2 P⌉. Sent per
/// rank: at most E ⌈log2 P⌉ (rank 0, on the way down). Any number of elements; not split into pieces.
[[nodiscard]] Plan tree_all_reduce(int ranks, std::size_t elements, int only = every_rank);

}  // namespace ranvier::collectives

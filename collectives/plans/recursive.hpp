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

}  // namespace ranvier::collectives

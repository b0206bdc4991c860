// Recursive doubling and halving for any number of ranks, with the fewest steps and elements. An all-gather doubles
// each rank's run of pieces per step; a reduce-scatter runs backwards; both together are Rabenseifner's all-reduce. P
// ranks, E elements, all divisible.
//
//   operation        steps         sent per rank
//   all-gather       ⌈log2 P⌉      E (P-1)/P
//   reduce-scatter   ⌈log2 P⌉      E (P-1)/P
//   all-reduce       2 ⌈log2 P⌉    2 E (P-1)/P
//
// Ranks are numbered by their pieces, so neighbours are on different nodes: a gather moves little across nodes in its
// first steps, and with powers of two most data moves inside nodes.
//
// Order of the sum for piece p: let x be the distance of a rank behind the owner (p - its piece, modulo P). For d =
// the largest power of two below P, …, 4, 2, 1, the value of x + d is added to that of x < d.
#pragma once

#include "collectives/plan.hpp"
#include "collectives/topology.hpp"

namespace ranvier::collectives {

[[nodiscard]] Plan recursive_all_gather(const Topology& topology, std::size_t elements, int chunks = 1,
                                        int chunk = 0, int only = every_rank);
[[nodiscard]] Plan recursive_reduce_scatter(const Topology& topology, std::size_t elements, int chunks = 1,
                                            int chunk = 0, int only = every_rank);
[[nodiscard]] Plan recursive_all_reduce(const Topology& topology, std::size_t elements, int chunks = 1,
                                        int chunk = 0, int only = every_rank);

}  // namespace ranvier::collectives

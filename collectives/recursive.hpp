// Recursive doubling and halving for any number of ranks, in the fewest steps and the fewest elements at once: in
// an all-gather each rank's run of pieces doubles in every step, and reduce-scatter is that backwards; one after
// the other they are an all-reduce (as Rabenseifner's). P ranks, E elements, all divisible.
//
//   operation        steps         sent per rank
//   all-gather       ⌈log2 P⌉      E (P-1)/P
//   reduce-scatter   ⌈log2 P⌉      E (P-1)/P
//   all-reduce       2 ⌈log2 P⌉    2 E (P-1)/P
//
// Ranks are counted by their pieces, so that neighbours are on different nodes: little crosses the nodes in the
// first steps of a gather, and where all sizes are powers of two, much moves only inside them.
//
// The sum of piece p: with x the distance of a rank behind the owner (x = p - its piece, modulo P; the owner has
// x = 0), for d = the largest power of two below P, …, 4, 2, 1, what x + d holds is added to what x < d holds.
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

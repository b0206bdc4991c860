// 2-D torus all-reduce (Mikami et al., cited by PaRO §2): reduce-scatter in rings inside the nodes, all-reduce in
// rings across the nodes, all-gather inside. Only neighbours communicate. n nodes (rows) of k ranks, P = n k, E
// elements, all divisible.
//
//   steps                 sent per rank   between nodes   out of a node
//   2 (k-1) + 2 (n-1)     2 E (P-1)/P     2 E (n-1)       2 E (P-k)/P
//
// Order of the sums: as in H-Ring's reduce-scatter.
#pragma once

#include "collectives/plans/plan.hpp"
#include "collectives/plans/topology.hpp"

namespace ranvier::collectives {

[[nodiscard]] Plan torus_all_reduce(const Topology& topology, std::size_t elements, int chunks = 1, int chunk = 0,
                                    int only = every_rank);

}  // namespace ranvier::collectives

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
// H-Ring (PaRO §3.3): rings across the nodes, then rings inside the nodes; a reduce-scatter runs in the opposite
// order. Only neighbours communicate.
//
// Order of the sum for the piece of rank (i, o): in each node ranks i+1, i+2, …, i; then nodes o+1, o+2, …, o.
[[nodiscard]] Plan h_ring_all_gather(const Topology& topology, std::size_t elements, int chunks = 1, int chunk = 0,
                                     int only = every_rank);
[[nodiscard]] Plan h_ring_reduce_scatter(const Topology& topology, std::size_t elements, int chunks = 1,
                                         int chunk = 0, int only = every_rank);

// HO-Ring (PaRO §3.3): rings inside and across the nodes run at the same time, so neither kind of link idles. While a
// node passes one node's pieces around, the rings across the nodes bring the next node's pieces.
//
// The reduce-scatter is a backwards all-gather of half pieces, so no step moves the same elements both inside and
// across nodes. With one rank per node, or one node, it is a plain ring.
[[nodiscard]] Plan ho_ring_all_gather(const Topology& topology, std::size_t elements, int chunks = 1, int chunk = 0,
                                      int only = every_rank);
/// Order of the sum for the piece of rank (i, o): S(o), with S(m) = (value of (i, m) + S(m-1)) + R(m). Here m goes
/// along nodes o+1, o+2, …, o, without S(m-1) at the first; R(m) is the sum in node m over ranks i+1, i+2, …, i-1.
[[nodiscard]] Plan ho_ring_reduce_scatter(const Topology& topology, std::size_t elements, int chunks = 1,
                                          int chunk = 0, int only = every_rank);
[[nodiscard]] Plan ho_ring_all_reduce(const Topology& topology, std::size_t elements, int chunks = 1, int chunk = 0,
                                      int only = every_rank);

/// 2-D torus (Mikami et al., cited by PaRO §2): H-Ring's reduce-scatter and all-gather, so the rings across the nodes
/// reduce in between.
[[nodiscard]] Plan torus_all_reduce(const Topology& topology, std::size_t elements, int chunks = 1, int chunk = 0,
                                    int only = every_rank);

}  // namespace ranvier::collectives

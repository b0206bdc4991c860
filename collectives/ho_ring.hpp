// HO-Ring (PaRO §3.3): rings inside and across the nodes run at the same time, so neither kind of link idles. While a
// node passes round one node's pieces, the next node's arrive over the rings across, part by part. n nodes (rows) of
// k > 1 ranks, P = n k, E elements, all divisible.
//
//   operation        steps          sent per rank   between nodes   out of a node
//   all-gather       n (k-1)        E (P-1)/P       E (n-1)         E (P-k)/P
//   reduce-scatter   2 n (k-1)      E (P-1)/P       E (n-1)         E (P-k)/P
//   all-reduce       3 n (k-1)      2 E (P-1)/P     2 E (n-1)       2 E (P-k)/P
//
// The reduce-scatter is a backwards all-gather of half pieces, so that one step never moves the same elements inside
// and across. One rank per node, or one node: a ring. README.md has the times.
#pragma once

#include "collectives/plan.hpp"
#include "collectives/topology.hpp"

namespace ranvier::collectives {

[[nodiscard]] Plan ho_ring_all_gather(const Topology& topology, std::size_t elements, int chunks = 1, int chunk = 0,
                                      int only = every_rank);
/// Order of the sum for the piece of rank (i, o): S(o), with S(m) = (value of (i, m) + S(m-1)) + R(m) along nodes
/// o+1, o+2, …, o, without S(m-1) at the first; R(m) is the sum in node m over ranks i+1, i+2, …, i-1.
[[nodiscard]] Plan ho_ring_reduce_scatter(const Topology& topology, std::size_t elements, int chunks = 1,
                                          int chunk = 0, int only = every_rank);
[[nodiscard]] Plan ho_ring_all_reduce(const Topology& topology, std::size_t elements, int chunks = 1, int chunk = 0,
                                      int only = every_rank);

}  // namespace ranvier::collectives

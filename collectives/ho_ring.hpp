// HO-Ring (PaRO §3.3): pieces go round the rings inside the nodes and across the nodes at the same time, so that
// neither kind of link idles. While a node passes round the pieces of one node, those of the next come in over the
// rings across, a part with each step. n nodes (rows) of k > 1 ranks, P = n k, E elements, all divisible.
//
//   operation        steps          sent per rank   between nodes   out of a node
//   all-gather       n (k-1)        E (P-1)/P       E (n-1)         E (P-k)/P
//   reduce-scatter   2 n (k-1)      E (P-1)/P       E (n-1)         E (P-k)/P
//   all-reduce       3 n (k-1)      2 E (P-1)/P     2 E (n-1)       2 E (P-k)/P
//
// The reduce-scatter is an all-gather backwards that moves halves of pieces, so that what goes inside and what goes
// across in one step are never the same elements. One rank per node, or one node: a ring. README.md has the times.
#pragma once

#include "collectives/plan.hpp"
#include "collectives/topology.hpp"

namespace ranvier::collectives {

[[nodiscard]] Plan ho_ring_all_gather(const Topology& topology, std::size_t elements, int chunks = 1, int chunk = 0,
                                      int only = every_rank);
/// The sum of the piece of rank (i, o): S(o), where S(m) = (value of (i, m) + S(m-1)) + R(m) along the nodes o+1, o+2,
/// …, o, without an S(m-1) at the first of them; R(m) is the sum in node m over ranks i+1, i+2, …, i-1.
[[nodiscard]] Plan ho_ring_reduce_scatter(const Topology& topology, std::size_t elements, int chunks = 1,
                                          int chunk = 0, int only = every_rank);
[[nodiscard]] Plan ho_ring_all_reduce(const Topology& topology, std::size_t elements, int chunks = 1, int chunk = 0,
                                      int only = every_rank);

}  // namespace ranvier::collectives

// Rings: each rank sends to the next one and receives from the previous one. README.md has the costs. Each function
// appends the steps of an all-gather to a plan; backwards, they are a reduce-scatter's. A single rank, or no elements:
// no steps.
#pragma once

#include "collectives/plans/plan_builders.hpp"

namespace ranvier::collectives {

/// One ring of all ranks. The sum for rank r's piece starts at rank r+1 and ends at rank r.
void ring_gather(Plan& plan, const Topology& topology, const GatherShape& shape);

/// H-Ring (PaRO §3.3): rings across the nodes, then rings inside the nodes; a reduce-scatter runs in the opposite
/// order. Only neighbours communicate. As an all-reduce it is the 2-D torus (Mikami et al., cited by PaRO §2): the
/// rings across the nodes reduce between those inside.
///
/// Order of the sum for the piece of rank (i, o): in each node ranks i+1, i+2, …, i; then nodes o+1, o+2, …, o.
void h_ring_gather(Plan& plan, const Topology& topology, const GatherShape& shape);

/// HO-Ring (PaRO §3.3): rings inside and across the nodes run at the same time, so neither kind of link idles. While a
/// node passes one node's pieces around, the rings across the nodes bring the next node's pieces.
///
/// The reduce-scatter is a backwards all-gather of half pieces, so no step moves the same elements both inside and
/// across nodes. With one rank per node, or one node, it is a plain ring.
///
/// Order of the sum for the piece of rank (i, o): S(o), with S(m) = (value of (i, m) + S(m-1)) + R(m). Here m goes
/// along nodes o+1, o+2, …, o, without S(m-1) at the first; R(m) is the sum in node m over ranks i+1, i+2, …, i-1.
void ho_ring_gather(Plan& plan, const Topology& topology, const GatherShape& shape);

}  // namespace ranvier::collectives

// All-to-all by direct messages: what a rank sends to an owner reaches it in one hop, so data that loses precision in
// messages does so once (ZeRO++ §3.3). P - 1 steps: in step s, rank r sends to rank r + s and receives from r - s.
//
// The buffer has two halves of a piece per rank: a rank sends piece p of the first half to the owner of piece p. In the
// second half, piece p receives the data of the owner of piece p. A rank's own pieces do not change.
#pragma once

#include "collectives/plans/plan_builders.hpp"

namespace ranvier::collectives {

/// Appends the steps of an all-to-all. A plan's elements include both halves.
void direct_exchange(Plan& plan, const Topology& topology, const GatherShape& shape);

}  // namespace ranvier::collectives

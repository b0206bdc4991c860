// Estimates the time of a plan on given links. A plan takes the sum of its steps; a step takes as long as its busiest
// rank or node. Per rank and link class: latencies of its messages and bytes in the busier direction. Per node and
// class: one latency and the bytes of its ranks. Classes and ranks work in parallel.
// Additions are not counted, since all reduce-scatters have the same. Ranks without steps cost nothing: on uniform
// nodes the last row's ranks cost as much as the complete plan. Pure; any thread.
#pragma once

#include "collectives/plans/link_file.hpp"
#include "collectives/plans/plan.hpp"
#include "collectives/plans/topology.hpp"

#include <cstddef>

namespace ranvier::collectives {

/// Conditions under which a plan runs.
struct Conditions {
  Links links;
  std::size_t element_bytes = 4;
  int chunks = 1;  ///< number of plans like this one
  int depth = 1;   ///< plans in flight; each further chunk costs the time of the busiest link
};

[[nodiscard]] double seconds(const Plan& plan, const Topology& topology, const Conditions& conditions);

}  // namespace ranvier::collectives

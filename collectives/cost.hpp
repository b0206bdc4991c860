// How long a plan takes on given links, estimated; and with it the choice between plans. Pure; any thread.
//
// A step takes as long as its busiest rank or node: of each rank, for each class of links, its messages' latencies
// and the bytes in the busier direction; of each node, for each class, one latency and the bytes of its ranks
// together. Links of different classes work at the same time, and so do ranks. A plan takes the sum of its steps.
// Additions are not counted: they are the same for all reduce-scatters. Ranks without steps take no time: where
// nodes are alike, a plan of the last row's ranks costs what all of it does, since runs of pieces wrap round there,
// if anywhere.
#pragma once

#include "collectives/link_file.hpp"
#include "collectives/plan.hpp"
#include "collectives/topology.hpp"

#include <cstddef>
#include <span>

namespace ranvier::collectives {

/// How a plan is going to be run.
struct Conditions {
  Links links;
  std::size_t element_bytes = 4;
  int chunks = 1;  ///< as many plans as the one that is asked about
  int depth = 1;   ///< of them at a time; a further chunk then costs what it keeps the busiest link busy for
};

[[nodiscard]] double seconds(const Plan& plan, const Topology& topology, const Conditions& conditions);

/// The index of the plan that takes least, the first of them if several do. Throws if there is none.
[[nodiscard]] std::size_t choose(std::span<const Plan> plans, const Topology& topology,
                                 const Conditions& conditions);

}  // namespace ranvier::collectives

// Elements that a plan moves per class of links. Pure; any thread.
#pragma once

#include "collectives/plans/algorithms.hpp"
#include "collectives/plans/plan.hpp"
#include "collectives/plans/topology.hpp"

#include <cstddef>
#include <span>

namespace ranvier::collectives {

/// Sent elements. Links of a rank and of a node work in both directions at once; maxima refer to the busier direction.
struct Traffic {
  std::size_t intra_node = 0;         ///< between ranks of one node, total
  std::size_t inter_node = 0;         ///< between nodes, total
  std::size_t max_intra_of_rank = 0;  ///< through one rank to or from others on its node
  std::size_t max_inter_of_rank = 0;  ///< through one rank to or from other nodes
  std::size_t max_inter_of_node = 0;  ///< out of or into one node, all its ranks
};

/// Traffic of all chunks together.
[[nodiscard]] Traffic traffic_of(std::span<const Plan> chunks, const Topology& topology);
[[nodiscard]] Traffic traffic_of(const Plan& plan, const Topology& topology);

/// Traffic of all parts together, without making a plan: O(P log P), for thousands of ranks too. Independent of
/// chunks.
[[nodiscard]] Traffic traffic_of(const Team& team, const PlanChoice& choice, const OperationShape& shape);

}  // namespace ranvier::collectives

#include "collectives/plans/h_ring.hpp"

#include "collectives/plans/plan_builders.hpp"

namespace ranvier::collectives {

Plan h_ring_all_gather(const Topology& topology, std::size_t elements, int chunks, int chunk, int only) {
  return gather_across_then_inside(
      "H-Ring all-gather", topology, elements, chunks, chunk, only,
      [](Plan& plan, const GatherTeam& team, int rank) { gather_round_ring(plan, team, rank); });
}

Plan h_ring_reduce_scatter(const Topology& topology, std::size_t elements, int chunks, int chunk, int only) {
  return mirrored(gather_across_then_inside(
      "H-Ring reduce-scatter", topology, elements, chunks, chunk, only,
      [](Plan& plan, const GatherTeam& team, int rank) { gather_round_ring(plan, team, rank, true); }));
}

}  // namespace ranvier::collectives

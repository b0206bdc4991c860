#include "collectives/plans/ring.hpp"

#include "collectives/plans/plan_builders.hpp"

namespace ranvier::collectives {

namespace {

Plan gather(std::string_view name, const Topology& topology, std::size_t elements, int chunks, int chunk, int only,
            bool backwards) {
  Plan plan = empty_plan(name, topology, elements, chunks, chunk);
  GatherTeam all;
  for (int rank = 0; rank < topology.ranks(); ++rank) {
    all.members.push_back(rank);
    all.blocks.push_back(block_of_pieces(plan, plan.piece(rank), 1, chunks, chunk));
  }
  gather_round_ring(plan, all, only, backwards);
  return plan;
}

}  // namespace

Plan ring_reduce_scatter(const Topology& topology, std::size_t elements, int chunks, int chunk, int only) {
  return mirrored(gather("ring reduce-scatter", topology, elements, chunks, chunk, only, true));
}

Plan ring_all_gather(const Topology& topology, std::size_t elements, int chunks, int chunk, int only) {
  return gather("ring all-gather", topology, elements, chunks, chunk, only, false);
}

Plan ring_all_reduce(const Topology& topology, std::size_t elements, int chunks, int chunk, int only) {
  Plan plan = empty_plan("ring all-reduce", topology, elements, chunks, chunk);
  append(plan, ring_reduce_scatter(topology, elements, chunks, chunk, only));
  append(plan, ring_all_gather(topology, elements, chunks, chunk, only));
  return plan;
}

Plan ring_reduce_scatter(int ranks, std::size_t elements, int chunks, int chunk) {
  return ring_reduce_scatter(Topology::regular(ranks, 1), elements, chunks, chunk);
}

Plan ring_all_gather(int ranks, std::size_t elements, int chunks, int chunk) {
  return ring_all_gather(Topology::regular(ranks, 1), elements, chunks, chunk);
}

Plan ring_all_reduce(int ranks, std::size_t elements, int chunks, int chunk) {
  return ring_all_reduce(Topology::regular(ranks, 1), elements, chunks, chunk);
}

}  // namespace ranvier::collectives

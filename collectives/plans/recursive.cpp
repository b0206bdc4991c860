#include "collectives/plans/recursive.hpp"

#include "collectives/plans/plan_builders.hpp"

namespace ranvier::collectives {

namespace {

Plan gather(std::string_view name, const Topology& topology, std::size_t elements, int chunks, int chunk,
            int only) {
  Plan plan = empty_plan(name, topology, elements, chunks, chunk);
  GatherTeam all;
  for (int piece = 0; piece < topology.ranks(); ++piece) {
    all.members.push_back(topology.rank_of_piece(piece));
    all.blocks.push_back(block_of_pieces(plan, piece, 1, chunks, chunk));
  }
  gather_by_doubling(plan, all, only);
  return plan;
}

}  // namespace

Plan recursive_all_gather(const Topology& topology, std::size_t elements, int chunks, int chunk, int only) {
  return gather("recursive all-gather", topology, elements, chunks, chunk, only);
}

Plan recursive_reduce_scatter(const Topology& topology, std::size_t elements, int chunks, int chunk, int only) {
  return mirrored(gather("recursive reduce-scatter", topology, elements, chunks, chunk, only));
}

Plan recursive_all_reduce(const Topology& topology, std::size_t elements, int chunks, int chunk, int only) {
  Plan plan = empty_plan("recursive all-reduce", topology, elements, chunks, chunk);
  append(plan, recursive_reduce_scatter(topology, elements, chunks, chunk, only));
  append(plan, recursive_all_gather(topology, elements, chunks, chunk, only));
  return plan;
}

}  // namespace ranvier::collectives

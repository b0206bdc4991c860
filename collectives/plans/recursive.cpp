#include "collectives/plans/recursive.hpp"

#include "collectives/plans/plan_builders.hpp"

#include <fmt/core.h>

#include <algorithm>

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

Plan hierarchical_all_gather(const Topology& topology, std::size_t elements, int chunks, int chunk, int only) {
  return gather_across_then_inside("hierarchical all-gather", topology, elements, chunks, chunk, only,
                                   gather_by_doubling);
}

Plan hierarchical_reduce_scatter(const Topology& topology, std::size_t elements, int chunks, int chunk, int only) {
  return mirrored(gather_across_then_inside("hierarchical reduce-scatter", topology, elements, chunks, chunk, only,
                                            gather_by_doubling));
}

Plan hierarchical_all_reduce(const Topology& topology, std::size_t elements, int chunks, int chunk, int only) {
  Plan plan = empty_plan("hierarchical all-reduce", topology, elements, chunks, chunk);
  append(plan, hierarchical_reduce_scatter(topology, elements, chunks, chunk, only));
  append(plan, hierarchical_all_gather(topology, elements, chunks, chunk, only));
  return plan;
}

Plan tree_all_reduce(int ranks, std::size_t elements, int only) {
  Plan plan{fmt::format("tree all-reduce of {} ranks, {} elements", ranks, elements), elements, {}};
  plan.ranks.resize(ranks);
  if (elements == 0) return plan;

  std::vector<int> strides;
  for (int stride = 1; stride < ranks; stride *= 2) strides.push_back(stride);
  // Adds one step to every rank. Multiples of `stride` are alternately parents and their children.
  const auto add_step = [&](int stride, Action parent_action, Action child_action) {
    const int first = only == every_rank ? 0 : only, end = only == every_rank ? ranks : only + 1;
    for (int rank = first; rank < end; ++rank) {
      Step step;
      if (rank % (2 * stride) == 0 && rank + stride < ranks) step = {{parent_action, rank + stride, {0, elements}}};
      if (rank % (2 * stride) == stride) step = {{child_action, rank - stride, {0, elements}}};
      plan.ranks[rank].push_back(std::move(step));
    }
  };
  for (const int stride : strides) add_step(stride, Action::receive_add, Action::send);
  std::reverse(strides.begin(), strides.end());
  for (const int stride : strides) add_step(stride, Action::send, Action::receive);
  return plan;
}

}  // namespace ranvier::collectives

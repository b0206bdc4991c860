#include "collectives/plans/recursive.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace ranvier::collectives {

namespace {

/// Blocks [first, first + count) of the team, wrapping around; adjacent ranges are merged.
Block run_of_blocks(const GatherTeam& team, int first, int count) {
  const auto members = static_cast<int>(team.members.size());
  Block ranges;
  for (int i = first; i < first + count; ++i) {
    const Block& block = team.blocks[i % members];
    ranges.insert(ranges.end(), block.begin(), block.end());
  }
  std::ranges::sort(ranges, {}, &Range::begin);
  Block runs;
  for (const Range& range : ranges) add_range(runs, range);
  return runs;
}

/// Each member's range of blocks doubles in every step (Bruck; blocks stay in place, so no rotation follows). Any
/// number of members. Steps: ⌈log2 members⌉.
void gather_by_doubling(Plan& plan, const GatherTeam& team, const GatherShape& shape) {
  const auto members = static_cast<int>(team.members.size());
  for (int distance = 1; distance < members; distance *= 2) {
    const int count = std::min(distance, members - distance);
    for (int me = 0; me < members; ++me) {
      if (!shape.wants(team.members[me])) continue;
      Step step;
      add_operations(step, Action::receive, team.members[(me + distance) % members],
                     run_of_blocks(team, me + distance, count));
      add_operations(step, Action::send, team.members[(me + members - distance) % members],
                     run_of_blocks(team, me, count));
      plan.ranks[team.members[me]].push_back(std::move(step));
    }
  }
}

}  // namespace

void recursive_gather(Plan& plan, const Topology& topology, const GatherShape& shape) {
  std::vector<int> ranks;
  for (int piece = 0; piece < topology.ranks(); ++piece) ranks.push_back(topology.rank_of_piece(piece));
  gather_among_all(plan, std::move(ranks), shape, gather_by_doubling);
}

void hierarchical_gather(Plan& plan, const Topology& topology, const GatherShape& shape) {
  gather_across_then_inside(plan, topology, shape, gather_by_doubling);
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

// Building blocks of plans: gathers among some of the ranks, and transformations of plans. For the algorithms' files
// only.
//
// A reduce-scatter is an all-gather that runs backwards: receives become sends of partial sums, and sends become
// receives that add. Since each range reaches each rank once in the gather, each contribution reaches the owner once.
#pragma once

#include "collectives/plans/plan.hpp"
#include "collectives/plans/topology.hpp"

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::collectives {

/// Initial data of a member of a team: ascending ranges that do not touch.
using Block = std::vector<Range>;

/// Ranks that gather among themselves: member m starts with block m, and all end with all blocks. All teams of a
/// plan have equally many members and equal blocks, so their steps stay aligned.
struct GatherTeam {
  std::vector<int> members;
  std::vector<Block> blocks;
};

/// Blocks travel around the ring to the next member, or backwards to the previous one. Steps: members - 1. `only` as in
/// every_rank.
void gather_round_ring(Plan& plan, const GatherTeam& team, int only, bool backwards = false);

/// Each member's range of blocks doubles in every step (Bruck; blocks stay in place, so no rotation follows). Any
/// number of members. Steps: ⌈log2 members⌉.
void gather_by_doubling(Plan& plan, const GatherTeam& team, int only);

/// A plan without steps, with the pieces of the topology.
[[nodiscard]] Plan empty_plan(std::string_view name, const Topology& topology, std::size_t elements, int chunks,
                              int chunk);

/// Range of the chunk in `count` pieces starting at `first`.
[[nodiscard]] Block block_of_pieces(const Plan& plan, int first, int count, int chunks, int chunk);

/// All-gather across the rows and then inside them, both by `gather`.
[[nodiscard]] Plan gather_across_then_inside(std::string_view name, const Topology& topology, std::size_t elements,
                                             int chunks, int chunk, int only,
                                             const std::function<void(Plan&, const GatherTeam&, int only)>& gather);

/// Reduce-scatter made from an all-gather that runs backwards. No step of the gather may send a range twice.
[[nodiscard]] Plan mirrored(Plan all_gather);

/// Appends the steps of `more` to `plan`.
void append(Plan& plan, const Plan& more);

}  // namespace ranvier::collectives

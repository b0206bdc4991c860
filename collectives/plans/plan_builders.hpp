// Building blocks of the algorithms, which are all-gathers. For the algorithms' files only.
//
// A reduce-scatter is an all-gather that runs backwards: receives become sends of partial sums, and sends become
// receives that add. Since each range reaches each rank once in the gather, each contribution reaches the owner once.
#pragma once

#include "collectives/plans/plan.hpp"
#include "collectives/plans/topology.hpp"

#include <vector>

namespace ranvier::collectives {

/// The chunk that a plan gathers, and its steps.
struct GatherShape {
  int chunks = 1, chunk = 0;
  int only = every_rank;   ///< rank whose steps are made
  bool backwards = false;  ///< the plan will be a reduce-scatter: data travels the other way around rings

  [[nodiscard]] bool wants(int rank) const noexcept { return only == every_rank || only == rank; }
};

/// Initial data of a member of a team: ascending ranges that do not touch.
using Block = std::vector<Range>;

/// Appends a range, merged with the block's last one if they touch.
void add_range(Block& block, const Range& range);
/// Adds an operation on each range of the block.
void add_operations(Step& step, Action action, int peer, const Block& block);

/// Ranks that gather among themselves: member m starts with block m, and all end with all blocks. All teams of a
/// plan have equally many members and equal blocks, so their steps stay aligned.
struct GatherTeam {
  std::vector<int> members;
  std::vector<Block> blocks;
};

/// Appends the steps of a team's gather.
using GatherTeamSteps = void(Plan& plan, const GatherTeam& team, const GatherShape& shape);

/// All-gather of all ranks as one team, in this order.
void gather_among_all(Plan& plan, std::vector<int> ranks, const GatherShape& shape, GatherTeamSteps* steps);

/// All-gather across the rows and then inside them.
void gather_across_then_inside(Plan& plan, const Topology& topology, const GatherShape& shape,
                               GatherTeamSteps* steps);

}  // namespace ranvier::collectives

// What plans are put together from: gathers among some of the ranks, and ways to make a plan of others. For the
// files of the algorithms only.
//
// A reduce-scatter is an all-gather that runs backwards: where a rank received a range, it sends its sum of that
// range; where it sent one, it adds what arrives. As each range reaches each rank once in the gather, each
// contribution reaches the owner once in its mirror.
#pragma once

#include "collectives/plan.hpp"
#include "collectives/topology.hpp"

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::collectives {

/// What one member of a circle starts with, in ascending runs that do not touch.
using Block = std::vector<Range>;

/// Ranks that gather among themselves: member m starts with block m, and all end with all blocks. All circles of a
/// stage have the same number of members and equal blocks, so that their steps stay abreast.
struct GatherTeam {
  std::vector<int> members;
  std::vector<Block> blocks;
};

/// Blocks travel once round, to the next member or, backwards, to the one before. Steps: members - 1. `only` as in
/// every_rank.
void gather_round_ring(Plan& plan, const GatherTeam& team, int only, bool backwards = false);

/// Each member's run of blocks doubles in every step, from the member as far ahead (Bruck; blocks stay where they
/// belong, so there is nothing to rotate afterwards). Any number of members. Steps: ⌈log2 members⌉.
void gather_by_doubling(Plan& plan, const GatherTeam& team, int only);

/// A plan without steps, whose pieces are those of the topology.
[[nodiscard]] Plan empty_plan(std::string_view name, const Topology& topology, std::size_t elements, int chunks,
                              int chunk);

/// The chunk's part of `count` pieces from `first` on.
[[nodiscard]] Block block_of_pieces(const Plan& plan, int first, int count, int chunks, int chunk);

/// All-gather across the rows and then inside them, both by `gather`.
[[nodiscard]] Plan gather_across_then_inside(std::string_view name, const Topology& topology, std::size_t elements,
                                             int chunks, int chunk, int only,
                                             const std::function<void(Plan&, const GatherTeam&, int only)>& gather);

/// The reduce-scatter that is this all-gather backwards. No step of the gather sends a range twice.
[[nodiscard]] Plan mirrored(Plan all_gather);

/// Puts the steps of `more` behind those of `plan`.
void append(Plan& plan, const Plan& more);

}  // namespace ranvier::collectives

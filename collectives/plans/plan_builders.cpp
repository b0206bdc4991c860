#include "collectives/plans/plan_builders.hpp"

#include <utility>

namespace ranvier::collectives {

namespace {

/// Range of the chunk in `count` pieces starting at `first`.
Block block_of_pieces(const Plan& plan, int first, int count, const GatherShape& shape) {
  const auto pieces = static_cast<int>(plan.ranks.size());
  Block block;
  for (int piece = first; piece < first + count; ++piece) {
    const Range slice = chunk_of_piece(plan.elements, pieces, piece, shape.chunks, shape.chunk);
    if (slice.count > 0) add_range(block, slice);
  }
  return block;
}

}  // namespace

void add_range(Block& block, const Range& range) {
  if (!block.empty() && block.back().begin + block.back().count == range.begin) {
    block.back().count += range.count;
  } else {
    block.push_back(range);
  }
}

void add_operations(Step& step, Action action, int peer, const Block& block) {
  for (const Range& range : block) step.push_back({action, peer, range});
}

void gather_among_all(Plan& plan, std::vector<int> ranks, const GatherShape& shape, GatherTeamSteps* steps) {
  GatherTeam all{std::move(ranks), {}};
  for (const int rank : all.members) all.blocks.push_back(block_of_pieces(plan, plan.piece(rank), 1, shape));
  if (!all.blocks.front().empty()) steps(plan, all, shape);
}

void gather_across_then_inside(Plan& plan, const Topology& topology, const GatherShape& shape,
                               GatherTeamSteps* steps) {
  if (block_of_pieces(plan, 0, 1, shape).empty()) return;
  for (int i = 0; i < topology.inner; ++i) {
    if (shape.only != every_rank && shape.only % topology.inner != i) continue;
    GatherTeam across{topology.column(i), {}};
    for (const int rank : across.members)
      across.blocks.push_back(block_of_pieces(plan, plan.piece(rank), 1, shape));
    steps(plan, across, shape);
  }
  for (int o = 0; o < topology.outer; ++o) {
    if (shape.only != every_rank && shape.only / topology.inner != o) continue;
    GatherTeam inside{topology.row(o), {}};
    for (int i = 0; i < topology.inner; ++i) {
      inside.blocks.push_back(block_of_pieces(plan, i * topology.outer, topology.outer, shape));
    }
    steps(plan, inside, shape);
  }
}

}  // namespace ranvier::collectives

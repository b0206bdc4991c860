#include "collectives/plans/plan_builders.hpp"

#include <algorithm>
#include <utility>

#include "runtime/base/error.hpp"

namespace ranvier::collectives {

namespace {

void add_operations(Step& step, Action action, int peer, const Block& block) {
  for (const Range& range : block) step.push_back({action, peer, range});
}

/// Blocks [first, first + count) of the team, wrapping around; adjacent ranges are merged.
Block run_of_blocks(const GatherTeam& team, int first, int count) {
  const auto members = static_cast<int>(team.members.size());
  Block ranges;
  for (int i = first; i < first + count; ++i) {
    const Block& block = team.blocks[i % members];
    ranges.insert(ranges.end(), block.begin(), block.end());
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& left, const Range& right) { return left.begin < right.begin; });
  Block runs;
  for (const Range& range : ranges) {
    if (!runs.empty() && runs.back().begin + runs.back().count == range.begin) {
      runs.back().count += range.count;
    } else {
      runs.push_back(range);
    }
  }
  return runs;
}

bool wanted(int only, int rank) { return only == every_rank || only == rank; }

bool is_empty(const GatherTeam& team) { return team.blocks.front().empty(); }

}  // namespace

void gather_round_ring(Plan& plan, const GatherTeam& team, int only, bool backwards) {
  if (is_empty(team)) return;
  const auto members = static_cast<int>(team.members.size());
  const int forward = backwards ? members - 1 : 1;
  for (int me = 0; me < members; ++me) {
    if (!wanted(only, team.members[me])) continue;
    const int next = (me + forward) % members, previous = (me + members - forward) % members;
    for (int hop = 0; hop < members - 1; ++hop) {
      const int mine = (me + (members - forward) * hop) % members;
      Step step;
      add_operations(step, Action::receive, team.members[previous],
                     team.blocks[(mine + members - forward) % members]);
      add_operations(step, Action::send, team.members[next], team.blocks[mine]);
      plan.ranks[team.members[me]].push_back(std::move(step));
    }
  }
}

void gather_by_doubling(Plan& plan, const GatherTeam& team, int only) {
  if (is_empty(team)) return;
  const auto members = static_cast<int>(team.members.size());
  for (int distance = 1; distance < members; distance *= 2) {
    const int count = std::min(distance, members - distance);
    for (int me = 0; me < members; ++me) {
      if (!wanted(only, team.members[me])) continue;
      Step step;
      add_operations(step, Action::receive, team.members[(me + distance) % members],
                     run_of_blocks(team, me + distance, count));
      add_operations(step, Action::send, team.members[(me + members - distance) % members],
                     run_of_blocks(team, me, count));
      plan.ranks[team.members[me]].push_back(std::move(step));
    }
  }
}

Plan empty_plan(std::string_view name, const Topology& topology, std::size_t elements, int chunks, int chunk) {
  const int ranks = topology.ranks();
  expect(topology.inner > 0 && topology.outer > 0, "{} of {} rows of {} ranks", name, topology.outer,
         topology.inner);
  expect(topology.node_of.size() == static_cast<std::size_t>(ranks),
         "{}: the nodes of {} ranks are known, not of {}", name, topology.node_of.size(), ranks);
  Plan plan{fmt::format("{} of {} × {} ranks, {} elements, chunk {} of {}", name, topology.outer, topology.inner,
                        elements, chunk, chunks),
            elements,
            std::vector<std::vector<Step>>(ranks),
            {}};
  if (topology.inner > 1 && topology.outer > 1) {
    for (int rank = 0; rank < ranks; ++rank) plan.pieces.push_back(topology.piece(rank));
  }
  return plan;
}

Block block_of_pieces(const Plan& plan, int first, int count, int chunks, int chunk) {
  const auto pieces = static_cast<int>(plan.ranks.size());
  Block block;
  for (int piece = first; piece < first + count; ++piece) {
    const Range slice = chunk_of_piece(plan.elements, pieces, piece, chunks, chunk);
    if (slice.count == 0) continue;
    if (!block.empty() && block.back().begin + block.back().count == slice.begin) {
      block.back().count += slice.count;
    } else {
      block.push_back(slice);
    }
  }
  return block;
}

Plan gather_across_then_inside(std::string_view name, const Topology& topology, std::size_t elements, int chunks,
                               int chunk, int only,
                               const std::function<void(Plan&, const GatherTeam&, int only)>& gather) {
  Plan plan = empty_plan(name, topology, elements, chunks, chunk);
  for (int i = 0; i < topology.inner; ++i) {
    if (only != every_rank && only % topology.inner != i) continue;
    GatherTeam across{topology.column(i), {}};
    for (const int rank : across.members) {
      across.blocks.push_back(block_of_pieces(plan, plan.piece(rank), 1, chunks, chunk));
    }
    gather(plan, across, only);
  }
  for (int o = 0; o < topology.outer; ++o) {
    if (only != every_rank && only / topology.inner != o) continue;
    GatherTeam inside{topology.row(o), {}};
    for (int i = 0; i < topology.inner; ++i) {
      inside.blocks.push_back(block_of_pieces(plan, i * topology.outer, topology.outer, chunks, chunk));
    }
    gather(plan, inside, only);
  }
  return plan;
}

Plan mirrored(Plan all_gather) {
  for (auto& steps : all_gather.ranks) {
    std::reverse(steps.begin(), steps.end());
    for (Step& step : steps) {
      std::reverse(step.begin(), step.end());
      for (Operation& operation : step) {
        operation.action = operation.action == Action::send ? Action::receive_add : Action::send;
      }
    }
  }
  return all_gather;
}

void append(Plan& plan, const Plan& more) {
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    auto& steps = plan.ranks[rank];
    steps.insert(steps.end(), more.ranks[rank].begin(), more.ranks[rank].end());
  }
}

}  // namespace ranvier::collectives

#include "collectives/plans/ring.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace ranvier::collectives {

namespace {

/// Blocks travel around the ring to the next member, or backwards to the previous one. Steps: members - 1.
void gather_round_ring(Plan& plan, const GatherTeam& team, const GatherShape& shape) {
  const auto members = static_cast<int>(team.members.size());
  const int forward = shape.backwards ? members - 1 : 1;
  for (int me = 0; me < members; ++me) {
    if (!shape.wants(team.members[me])) continue;
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

}  // namespace

void ring_gather(Plan& plan, const Topology& topology, const GatherShape& shape) {
  std::vector<int> ranks(topology.ranks());
  std::iota(ranks.begin(), ranks.end(), 0);
  gather_among_all(plan, std::move(ranks), shape, gather_round_ring);
}

void h_ring_gather(Plan& plan, const Topology& topology, const GatherShape& shape) {
  gather_across_then_inside(plan, topology, shape, gather_round_ring);
}

/// Gathers inside and across the nodes at the same time. Forwards, a piece travels to the next rank and the next node;
/// backwards, to the previous ones.
///
/// A *round* passes one node's pieces around the rings inside the nodes: k-1 hops of `lanes` steps. Each step moves one
/// lane, an equal share of each piece. The rings across the nodes move one part of a piece per step, so a piece has as
/// many parts as a round has steps. With two lanes, the moves across start a step later: a rank sends each element
/// inside its node before it sends it across. So backwards, the two sums reach a rank in the same order for every lane
/// and chunk.
void ho_ring_gather(Plan& plan, const Topology& topology, const GatherShape& shape) {
  const int inner = topology.inner, outer = topology.outer;
  const int lanes = shape.backwards && inner > 1 && outer > 1 ? 2 : 1;
  const int hops = std::max(1, inner - 1), lag = lanes - 1, parts = lanes * hops;
  const auto slice_of = [&](int piece) {
    return chunk_of_piece(plan.elements, topology.ranks(), piece, shape.chunks, shape.chunk);
  };
  const std::size_t length = slice_of(0).count;
  if (length == 0) return;

  const auto wrap = [](int index, int size) { return (index % size + size) % size; };
  // Parts [first, first + count) of the piece of rank (i, o); i and o wrap around.
  const auto range = [&](int i, int o, int first, int count) {
    const int owner = topology.rank(wrap(i, inner), wrap(o, outer));
    const std::size_t begin = length * first / parts, end = length * (first + count) / parts;
    return Range{slice_of(plan.piece(owner)).begin + begin, end - begin};
  };
  const auto add = [](Step& step, Action action, int peer, const Range& moved) {
    if (moved.count > 0) step.push_back({action, peer, moved});
  };

  const int way = shape.backwards ? -1 : 1;
  const int steps = inner > 1 ? outer * parts : outer - 1;
  for (int i = 0; i < inner; ++i) {
    for (int o = 0; o < outer; ++o) {
      const int rank = topology.rank(i, o);
      if (!shape.wants(rank)) continue;
      const auto inside = [&](int distance) { return topology.rank(wrap(i + distance, inner), o); };
      const auto across = [&](int distance) { return topology.rank(i, wrap(o + distance, outer)); };
      for (int s = 0; s < steps; ++s) {
        Step step;
        if (inner > 1) {
          const int round = s / parts, hop = s % parts / lanes, lane = s % lanes;
          const int sent = i - way * hop, node = o - way * round;
          add(step, Action::receive, inside(-way), range(sent - way, node, lane * hops, hops));
          add(step, Action::send, inside(way), range(sent, node, lane * hops, hops));
        }
        if (s >= lag && (s - lag) / parts < outer - 1) {
          const int node = o - way * ((s - lag) / parts), part = (s - lag) % parts;
          add(step, Action::receive, across(-way), range(i, node - way, part, 1));
          add(step, Action::send, across(way), range(i, node, part, 1));
        }
        plan.ranks[rank].push_back(std::move(step));
      }
    }
  }
}

}  // namespace ranvier::collectives

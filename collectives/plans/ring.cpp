#include "collectives/plans/ring.hpp"

#include "collectives/plans/plan_builders.hpp"

#include <algorithm>
#include <utility>

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

Plan h_ring_all_gather(const Topology& topology, std::size_t elements, int chunks, int chunk, int only) {
  return gather_across_then_inside(
      "H-Ring all-gather", topology, elements, chunks, chunk, only,
      [](Plan& plan, const GatherTeam& team, int rank) { gather_round_ring(plan, team, rank); });
}

Plan h_ring_reduce_scatter(const Topology& topology, std::size_t elements, int chunks, int chunk, int only) {
  return mirrored(gather_across_then_inside(
      "H-Ring reduce-scatter", topology, elements, chunks, chunk, only,
      [](Plan& plan, const GatherTeam& team, int rank) { gather_round_ring(plan, team, rank, true); }));
}

namespace {

/// Gathers inside and across the nodes at the same time. Forwards, a piece travels to the next rank and the next node;
/// backwards, to the previous ones.
///
/// A *round* passes one node's pieces around the rings inside the nodes: k-1 hops of `lanes` steps. Each step moves one
/// lane, an equal share of each piece. The rings across the nodes move one part of a piece per step, so a piece has as
/// many parts as a round has steps. With two lanes, the moves across start a step later: a rank sends each element
/// inside its node before it sends it across. So backwards, the two sums reach a rank in the same order for every lane
/// and chunk.
Plan gather_both_ways(std::string_view name, const Topology& topology, std::size_t elements, int chunks, int chunk,
                      int lanes, bool backwards, int only) {
  Plan plan = empty_plan(name, topology, elements, chunks, chunk);
  const int inner = topology.inner, outer = topology.outer;
  const int hops = std::max(1, inner - 1), lag = lanes - 1, parts = lanes * hops;
  const std::size_t length = chunk_of_piece(elements, topology.ranks(), 0, chunks, chunk).count;
  if (length == 0) return plan;

  const auto wrap = [](int index, int size) { return (index % size + size) % size; };
  // Parts [first, first + count) of the piece of rank (i, o); i and o wrap around.
  const auto range = [&](int i, int o, int first, int count) {
    const int owner = topology.rank(wrap(i, inner), wrap(o, outer));
    const std::size_t slice = chunk_of_piece(elements, topology.ranks(), plan.piece(owner), chunks, chunk).begin;
    const std::size_t begin = length * first / parts, end = length * (first + count) / parts;
    return Range{slice + begin, end - begin};
  };
  const auto add = [](Step& step, Action action, int peer, const Range& moved) {
    if (moved.count > 0) step.push_back({action, peer, moved});
  };

  const int way = backwards ? -1 : 1;
  const int steps = inner > 1 ? outer * parts : outer - 1;
  for (int i = 0; i < inner; ++i) {
    for (int o = 0; o < outer; ++o) {
      const int rank = topology.rank(i, o);
      if (only != every_rank && rank != only) continue;
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
  return plan;
}

}  // namespace

Plan ho_ring_all_gather(const Topology& topology, std::size_t elements, int chunks, int chunk, int only) {
  return gather_both_ways("HO-Ring all-gather", topology, elements, chunks, chunk, 1, false, only);
}

Plan ho_ring_reduce_scatter(const Topology& topology, std::size_t elements, int chunks, int chunk, int only) {
  const int lanes = topology.inner > 1 && topology.outer > 1 ? 2 : 1;
  return mirrored(gather_both_ways("HO-Ring reduce-scatter", topology, elements, chunks, chunk, lanes, true, only));
}

Plan ho_ring_all_reduce(const Topology& topology, std::size_t elements, int chunks, int chunk, int only) {
  Plan plan = empty_plan("HO-Ring all-reduce", topology, elements, chunks, chunk);
  append(plan, ho_ring_reduce_scatter(topology, elements, chunks, chunk, only));
  append(plan, ho_ring_all_gather(topology, elements, chunks, chunk, only));
  return plan;
}

Plan torus_all_reduce(const Topology& topology, std::size_t elements, int chunks, int chunk, int only) {
  // The all-reduce across the nodes is the last phase of the reduce-scatter and the first one of the all-gather.
  Plan plan = empty_plan("torus all-reduce", topology, elements, chunks, chunk);
  append(plan, h_ring_reduce_scatter(topology, elements, chunks, chunk, only));
  append(plan, h_ring_all_gather(topology, elements, chunks, chunk, only));
  return plan;
}

}  // namespace ranvier::collectives

#include "actors/states/algorithm_choice.hpp"

#include "collectives/communicators/quantized_communicator.hpp"
#include "collectives/plans/cost.hpp"
#include "runtime/base/error.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

namespace ranvier::actors {

using collectives::Algorithm;
using collectives::Collective;
using collectives::Plan;
using collectives::PlanChoice;
using collectives::Team;
using collectives::TeamKind;

namespace {

bool uses(const collectives::ShardFlow& flow, Collective collective, TeamKind team,
          const collectives::WireTypes& wire) {
  // Sums in blocks are gathered.
  const bool gathers_sums = collective == Collective::all_gather && !wire.reduce.same();
  const auto is_it = [&](const collectives::Hop& hop) {
    return hop.team == team &&
           (hop.collective == collective || (gathers_sums && hop.collective == Collective::all_reduce));
  };
  return std::ranges::any_of(std::array{&flow.gather_forward, &flow.gather_backward, &flow.reduce_microbatch,
                                        &flow.reduce_batch, &flow.gather_gradient, &flow.refresh},
                             [&](const auto* hops) { return std::ranges::any_of(*hops, is_it); });
}

/// Returns whether each node's ranks do the same in these teams, so that one node represents all. Then each row of a
/// team is on a separate node, and all nodes have the same number of ranks. All algorithms treat the rows of a topology
/// identically.
bool nodes_do_the_same(std::span<const Team> teams, std::span<const int> node_of) {
  std::map<int, int> ranks_of;
  for (const int node : node_of) ++ranks_of[node];
  for (const auto& [node, ranks] : ranks_of) {
    if (ranks != ranks_of.begin()->second) return false;
  }
  for (const Team& team : teams) {
    const collectives::Topology& t = team.topology;
    if (t.inner != teams[0].topology.inner || t.outer != teams[0].topology.outer) return false;
    std::set<int> nodes;
    for (int o = 0; o < t.outer; ++o) {
      for (int i = 0; i < t.inner; ++i) {
        if (!t.same_node(t.rank(i, o), t.rank(0, o))) return false;
      }
      nodes.insert(t.node_of[static_cast<std::size_t>(t.rank(0, o))]);
    }
    if (std::ssize(nodes) != t.outer) return false;
  }
  return true;
}

}  // namespace

std::vector<Team> teams_of(std::span<const int> node_of, int group_size, TeamKind kind) {
  const collectives::Groups groups(node_of, group_size);
  if (kind == TeamKind::column) return {groups.column()};
  std::vector<Team> teams;
  std::vector<bool> seen(node_of.size(), false);
  for (int rank = 0; rank < static_cast<int>(node_of.size()); ++rank) {
    if (seen[static_cast<std::size_t>(rank)]) continue;
    teams.push_back(kind == TeamKind::group ? groups.group_of(rank) : groups.replicas_of(rank));
    for (const int member : teams.back().members) seen[static_cast<std::size_t>(member)] = true;
  }
  return teams;
}

double seconds_together(std::span<const Team> teams, std::span<const int> node_of, const Algorithm& algorithm,
                        const PlanChoice& cut, std::size_t elements, runtime::DType dtype,
                        const collectives::Links& links) {
  expect(!teams.empty(), "the list of teams is empty");
  const int chunks = cut.chunks(teams[0].topology.ranks(), std::span(&elements, 1), dtype);
  // Builds one plan over the column from the steps of each rank in its team. If all nodes do the same, it contains the
  // ranks of one node only, so its size does not grow with the square of the column.
  Plan joint{.name = std::string(algorithm.name), .elements = elements, .ranks = {}};
  joint.ranks.resize(node_of.size());
  const bool alike = nodes_do_the_same(teams, node_of);
  const int last_node = teams[0].topology.node_of.back();
  for (const Team& team : teams) {
    const auto add = [&](std::size_t member, std::vector<collectives::Step> steps) {
      for (collectives::Step& step : steps) {
        for (auto& operation : step) operation.peer = team.members[static_cast<std::size_t>(operation.peer)];
      }
      joint.ranks[static_cast<std::size_t>(team.members[member])] = std::move(steps);
    };
    const int last = chunks - 1;  // no chunk is larger
    Plan whole = alike ? Plan() : algorithm.plan(team.topology, elements, chunks, last);
    for (std::size_t member = 0; member < team.members.size(); ++member) {
      if (!alike) {
        add(member, std::move(whole.ranks[member]));
      } else if (node_of[static_cast<std::size_t>(team.members[member])] == last_node) {
        const auto rank = static_cast<int>(member);
        add(member, std::move(algorithm.plan(team.topology, elements, chunks, last, rank).ranks[member]));
      }
    }
  }
  const collectives::Topology column{static_cast<int>(node_of.size()), 1, {node_of.begin(), node_of.end()}};
  return collectives::seconds(
      joint, column,
      {.links = links, .element_bytes = size_of(dtype), .chunks = chunks, .depth = std::min(chunks, cut.depth)});
}

PlanChoices choose_algorithms(std::span<const int> node_of, int group_size, const ChoiceOptions& options) {
  PlanChoices choices;
  const collectives::ShardLayout layout(node_of, group_size, 0);
  const auto used = [&](Collective collective, TeamKind kind) {
    if (!options.sharding) return true;
    const collectives::ShardFlow gathers = layout.flow(options.sharding->frozen);
    const collectives::ShardFlow frozen{.gather_forward = gathers.gather_forward,
                                        .gather_backward = gathers.gather_backward};
    return uses(frozen, collective, kind, options.wire) ||
           uses(layout.flow(options.sharding->trained, options.wire), collective, kind, options.wire);
  };
  for (int k = 0; k < collectives::team_kinds; ++k) {
    const auto kind = static_cast<TeamKind>(k);
    const std::vector<Team> teams = teams_of(node_of, group_size, kind);
    // Collectives of replicas work on one group shard only.
    const std::size_t pieces = kind == TeamKind::replicas ? static_cast<std::size_t>(group_size) : 1;
    PlanChoice& choice = choices[static_cast<std::size_t>(k)];
    const auto choose = [&](Collective collective, std::string AlgorithmNames::* name, runtime::DType dtype,
                            std::size_t largest, const collectives::WireTypes::Links& links) -> std::string {
      const bool keeps = options.kept && options.names.*name == "auto";
      const std::string& given = (keeps ? (*options.kept)[static_cast<std::size_t>(k)] : options.names).*name;
      if (given != "auto") return std::string(collectives::algorithm(collective, given).name);
      std::string_view fastest = collectives::algorithms(collective).front().name;
      std::size_t elements = largest / pieces;
      if (teams[0].topology.ranks() == 1 || elements == 0 || !used(collective, kind)) return std::string(fastest);
      if (const auto code = collectives::block_code(layout.wire_type(kind, links))) {
        // Sums in blocks are sent directly to their owners.
        if (collective != Collective::all_gather) return std::string(fastest);
        const auto packed = collectives::QuantizedCommunicator::packed_shapes({.parts = {elements}}, *code).front();
        elements = packed.parts[0];
        dtype = packed.dtype;
      }
      double least = -1;
      for (const Algorithm& each : collectives::algorithms(collective)) {
        const double seconds = seconds_together(teams, node_of, each, choice, elements, dtype, options.links);
        if (least >= 0 && seconds >= least) continue;
        least = seconds;
        fastest = each.name;
      }
      return std::string(fastest);
    };
    const auto& [all, trained] = options.largest;
    const auto& [compute, gradient] = options.precision;
    const auto& [gather, reduce] = options.wire;
    choice.all_gather = choose(Collective::all_gather, &AlgorithmNames::all_gather, compute, all, gather);
    choice.reduce_scatter =
        choose(Collective::reduce_scatter, &AlgorithmNames::reduce_scatter, gradient, trained, reduce);
    choice.all_reduce = choose(Collective::all_reduce, &AlgorithmNames::all_reduce, gradient, trained, reduce);
  }
  return choices;
}

}  // namespace ranvier::actors

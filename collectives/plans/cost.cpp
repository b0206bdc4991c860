#include "collectives/plans/cost.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "runtime/base/error.hpp"

namespace ranvier::collectives {

namespace {

/// Data through one rank or node in one step over one class of links.
struct Load {
  double messages_out = 0, messages_in = 0;
  double bytes_out = 0, bytes_in = 0;

  void count(Action action, double bytes) {
    (action == Action::send ? messages_out : messages_in) += 1;
    (action == Action::send ? bytes_out : bytes_in) += bytes;
  }
  [[nodiscard]] double messages() const { return std::max(messages_out, messages_in); }
  [[nodiscard]] double bytes() const { return std::max(bytes_out, bytes_in); }
};

constexpr std::size_t classes = 2;  // link classes: inside nodes, between nodes

struct Estimate {
  double total = 0;          ///< seconds of all steps in sequence
  std::vector<double> busy;  ///< by active rank, then by node of active ranks; and by class
};

Estimate estimate(const Plan& plan, const Topology& topology, const Conditions& conditions) {
  const std::array<const Link*, classes> links = {&conditions.links.intra_node, &conditions.links.inter_node};
  std::vector<std::size_t> acting;
  std::map<int, std::size_t> node_index;
  std::size_t steps = 0;
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    if (plan.ranks[rank].empty()) continue;
    acting.push_back(rank);
    node_index.emplace(topology.node_of.at(rank), node_index.size());
    steps = std::max(steps, plan.ranks[rank].size());
  }

  Estimate result;
  result.busy.resize(classes * (acting.size() + node_index.size()));
  std::vector<Load> loads;
  for (std::size_t s = 0; s < steps; ++s) {
    loads.assign(result.busy.size(), {});
    for (std::size_t a = 0; a < acting.size(); ++a) {
      const std::size_t rank = acting[a];
      if (s >= plan.ranks[rank].size()) continue;
      const Step& step = plan.ranks[rank][s];
      const std::size_t node = acting.size() + node_index.at(topology.node_of[rank]);
      for (const auto& [action, peer, range] : step) {
        const std::size_t link = topology.same_node(static_cast<int>(rank), peer) ? 0 : 1;
        const auto bytes = static_cast<double>(range.count * conditions.element_bytes);
        for (const std::size_t place : {a, node}) loads[place * classes + link].count(action, bytes);
      }
    }
    double longest = 0;
    for (std::size_t i = 0; i < loads.size(); ++i) {
      const Link& link = *links[i % classes];
      if (loads[i].messages() == 0) continue;
      expect(link.measured(), "{}: {} links are not measured", plan.name,
             i % classes == 0 ? "intra_node" : "inter_node");
      const bool of_rank = i / classes < acting.size();
      const double time =
          of_rank ? link.latency_seconds * loads[i].messages() + loads[i].bytes() / link.bytes_per_second
                  : link.latency_seconds + loads[i].bytes() / link.node_bytes_per_second;
      result.busy[i] += time;
      longest = std::max(longest, time);
    }
    result.total += longest;
  }
  return result;
}

}  // namespace

double seconds(const Plan& plan, const Topology& topology, const Conditions& conditions) {
  expect(conditions.chunks > 0 && conditions.depth > 0, "invalid chunks: {} of {}, {} in flight", conditions.chunks,
         plan.name, conditions.depth);
  const Estimate chunk = estimate(plan, topology, conditions);
  const double busiest = chunk.busy.empty() ? 0 : *std::max_element(chunk.busy.begin(), chunk.busy.end());
  return chunk.total + (conditions.chunks - 1) * std::max(busiest, chunk.total / conditions.depth);
}

}  // namespace ranvier::collectives

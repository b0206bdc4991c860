#include "collectives/traffic.hpp"

#include <algorithm>
#include <map>
#include <vector>

namespace ranvier::collectives {

namespace {

/// Of one rank or node.
struct Port {
  std::size_t out = 0;
  std::size_t in = 0;

  [[nodiscard]] std::size_t busier() const { return std::max(out, in); }
};

}  // namespace

Traffic traffic_of(std::span<const Plan> chunks, const Topology& topology) {
  Traffic traffic;
  std::vector<Port> intra(topology.ranks()), inter(topology.ranks());
  std::map<int, Port> nodes;
  for (const Plan& plan : chunks) {
    for (int rank = 0; rank < topology.ranks(); ++rank) {
      for (const Step& step : plan.ranks.at(rank)) {
        for (const auto& [action, peer, range] : step) {
          if (action != Action::send) continue;
          const bool same_node = topology.same_node(rank, peer);
          auto& ports = same_node ? intra : inter;
          ports[rank].out += range.count;
          ports[peer].in += range.count;
          (same_node ? traffic.intra_node : traffic.inter_node) += range.count;
          if (same_node) continue;
          nodes[topology.node_of[rank]].out += range.count;
          nodes[topology.node_of[peer]].in += range.count;
        }
      }
    }
  }
  for (const Port& port : intra) traffic.most_intra_of_rank = std::max(traffic.most_intra_of_rank, port.busier());
  for (const Port& port : inter) traffic.most_inter_of_rank = std::max(traffic.most_inter_of_rank, port.busier());
  for (const auto& [node, port] : nodes) {
    traffic.most_inter_of_node = std::max(traffic.most_inter_of_node, port.busier());
  }
  return traffic;
}

Traffic traffic_of(const Plan& plan, const Topology& topology) {
  return traffic_of(std::span<const Plan>(&plan, 1), topology);
}

}  // namespace ranvier::collectives

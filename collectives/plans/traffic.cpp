#include "collectives/plans/traffic.hpp"

#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"

namespace ranvier::collectives {

namespace {

/// Elements sent and received by one rank or node.
struct Port {
  std::size_t out = 0;
  std::size_t in = 0;

  [[nodiscard]] std::size_t busier() const { return std::max(out, in); }
};

class Count {
 public:
  explicit Count(const Topology& topology)
      : topology_(&topology), intra_(topology.ranks()), inter_(topology.ranks()) {}

  void send(int from, int to, std::size_t elements) {
    const bool same_node = topology_->same_node(from, to);
    auto& ports = same_node ? intra_ : inter_;
    ports[from].out += elements;
    ports[to].in += elements;
    (same_node ? traffic_.intra_node : traffic_.inter_node) += elements;
    if (same_node) return;
    nodes_[topology_->node_of[from]].out += elements;
    nodes_[topology_->node_of[to]].in += elements;
  }

  /// Every rank sends `elements` to each other rank.
  void exchange(std::size_t elements) {
    std::map<int, std::size_t> members;
    for (const int node : topology_->node_of) ++members[node];
    for (std::size_t rank = 0; rank < topology_->node_of.size(); ++rank) {
      const int node = topology_->node_of[rank];
      const std::size_t inside = (members[node] - 1) * elements;
      const std::size_t outside = (topology_->node_of.size() - members[node]) * elements;
      const auto add = [](Port& port, std::size_t sent) {
        port.out += sent;
        port.in += sent;
      };
      add(intra_[rank], inside);
      add(inter_[rank], outside);
      add(nodes_[node], outside);
      traffic_.intra_node += inside;
      traffic_.inter_node += outside;
    }
  }

  [[nodiscard]] Traffic traffic() const {
    Traffic traffic = traffic_;
    for (const Port& port : intra_) traffic.max_intra_of_rank = std::max(traffic.max_intra_of_rank, port.busier());
    for (const Port& port : inter_) traffic.max_inter_of_rank = std::max(traffic.max_inter_of_rank, port.busier());
    for (const auto& [node, port] : nodes_) {
      traffic.max_inter_of_node = std::max(traffic.max_inter_of_node, port.busier());
    }
    return traffic;
  }

 private:
  const Topology* topology_;
  Traffic traffic_;  ///< maxima are set by traffic()
  std::vector<Port> intra_, inter_;
  std::map<int, Port> nodes_;
};

/// Counts an all-gather in closed form for the teams of plan_builders.hpp, or a reduce-scatter if `backwards`; a piece
/// has `piece` elements.
void count_one_way(Count& count, const Topology& topology, std::string_view name, std::size_t piece,
                   bool backwards) {
  // Each member starts with `block` elements. Rings have the same direction in both operations.
  const auto ring = [&](const std::vector<int>& members, std::size_t block) {
    const std::size_t size = members.size();
    for (std::size_t me = 0; me < size; ++me) count.send(members[me], members[(me + 1) % size], (size - 1) * block);
  };
  const auto doubling = [&](const std::vector<int>& members, std::size_t block) {
    const std::size_t size = members.size();
    for (std::size_t distance = 1; distance < size; distance *= 2) {
      const std::size_t sent = std::min(distance, size - distance) * block;
      for (std::size_t me = 0; me < size; ++me) {
        const int ahead = members[me], behind = members[(me + size - distance) % size];
        backwards ? count.send(behind, ahead, sent) : count.send(ahead, behind, sent);
      }
    }
  };
  const auto across_then_inside = [&](const auto& gather) {
    for (int i = 0; i < topology.inner; ++i) gather(topology.column(i), piece);
    for (int o = 0; o < topology.outer; ++o)
      gather(topology.row(o), piece * static_cast<std::size_t>(topology.outer));
  };
  std::vector<int> all;
  if (name == "ring") {
    for (int rank = 0; rank < topology.ranks(); ++rank) all.push_back(rank);
    return ring(all, piece);
  }
  if (name == "recursive") {
    for (int owned = 0; owned < topology.ranks(); ++owned) all.push_back(topology.rank_of_piece(owned));
    return doubling(all, piece);
  }
  if (name == "hierarchical") return across_then_inside(doubling);
  if (name == "h-ring" || name == "torus" || name == "ho-ring") return across_then_inside(ring);
  fail(ErrorCode::internal, "traffic of algorithm '{}' is not defined; add it to collectives/plans/traffic.cpp",
       name);
}

}  // namespace

Traffic traffic_of(std::span<const Plan> chunks, const Topology& topology) {
  Count count(topology);
  for (const Plan& plan : chunks) {
    for (int rank = 0; rank < topology.ranks(); ++rank) {
      for (const Step& step : plan.ranks.at(rank)) {
        for (const auto& [action, peer, range] : step) {
          if (action == Action::send) count.send(rank, peer, range.count);
        }
      }
    }
  }
  return count.traffic();
}

Traffic traffic_of(const Team& team, const PlanChoice& choice, const OperationShape& shape) {
  const Topology& topology = team.topology;
  Count count(topology);
  std::size_t piece = 0;
  for (const std::size_t elements : shape.parts) piece += elements / static_cast<std::size_t>(topology.ranks());
  if (topology.ranks() == 1) return {};
  if (shape.collective == Collective::all_to_all) {
    count.exchange(piece / 2);
    return count.traffic();
  }
  const std::string_view name = choice.algorithm_of(shape.collective).name;
  if (shape.collective != Collective::all_gather) count_one_way(count, topology, name, piece, true);
  if (shape.collective != Collective::reduce_scatter) count_one_way(count, topology, name, piece, false);
  return count.traffic();
}

Traffic traffic_of(const Plan& plan, const Topology& topology) {
  return traffic_of(std::span<const Plan>(&plan, 1), topology);
}

}  // namespace ranvier::collectives

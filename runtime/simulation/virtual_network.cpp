#include "runtime/simulation/virtual_network.hpp"

#include "runtime/base/error.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

namespace ranvier::runtime {

namespace {

/// Rate 0: no limit.
double seconds_of(double bytes, double bytes_per_second) {
  return bytes_per_second > 0 ? bytes / bytes_per_second : 0;
}

}  // namespace

VirtualNetwork::VirtualNetwork(std::vector<int> node_of, const Links& links, std::vector<double> slowness)
    : node_of_(std::move(node_of)), links_(links), slowness_(std::move(slowness)) {
  for (const int node : node_of_) {
    expect(node >= 0, "node is out of range: {}", node);
    nodes_ = std::max(nodes_, node + 1);
  }
  ranks_.resize(node_of_.size());
  sent_.resize(node_of_.size());
  node_ports_.resize(static_cast<std::size_t>(nodes_));
}

double VirtualNetwork::slowness(int node) const {
  return static_cast<std::size_t>(node) < slowness_.size() ? slowness_[static_cast<std::size_t>(node)] : 1;
}

Duration VirtualNetwork::latency(int from, int to) const {
  return duration((node_of(from) == node_of(to) ? links_.intra_node : links_.inter_node).latency_seconds);
}

/// Queues `busy` on the port, starting at `ready`; returns its end. Each kind gets half of the rate while the other
/// kind is queued, too.
Duration VirtualNetwork::take(Direction& direction, Kind kind, Duration ready, Duration busy) {
  Duration& mine = direction[kind];
  Duration& other = direction[kind == messages ? rings : messages];
  const Duration begin = std::max(mine, ready);
  const Duration shared = std::min(busy, std::max(other - begin, Duration(0)) / 2);
  mine = begin + busy + shared;
  if (shared > Duration(0)) other += shared;
  return mine;
}

VirtualNetwork::Passage VirtualNetwork::carry(int from, int to, std::size_t bytes, Duration ready) {
  const int node_from = node_of(from), node_to = node_of(to);
  const bool same = node_from == node_to;
  const Link& link = same ? links_.intra_node : links_.inter_node;
  const std::size_t which = same ? intra : inter;
  const double slow = std::max(slowness(node_from), slowness(node_to)), size = static_cast<double>(bytes) * slow;
  const Duration of_rank = duration(seconds_of(size, link.bytes_per_second));
  const Duration of_node = duration(seconds_of(size, link.node_bytes_per_second));
  SentVolume& sent = sent_[static_cast<std::size_t>(from)];
  (same ? sent.bytes_intra : sent.bytes_inter) += static_cast<double>(bytes);
  ++sent.messages;

  // Each port forwards the bytes as fast as they come; the slowest determines the arrival. All ports are taken
  // starting when the sender's own port is free.
  Port& source = ranks_[static_cast<std::size_t>(from)][which];
  Port& target = ranks_[static_cast<std::size_t>(to)][which];
  Port& near = node_ports_[static_cast<std::size_t>(node_from)][which];
  Port& far = node_ports_[static_cast<std::size_t>(node_to)][which];
  const Duration begin = std::max(source.out[messages], ready);
  const Duration left = take(source.out, messages, begin, of_rank);
  Duration end = std::max(left, take(target.in, messages, begin, of_rank));
  end = std::max(end, take(near.out, messages, begin, of_node));
  if (!same) end = std::max(end, take(far.in, messages, begin, of_node));
  return {left, end + duration(link.latency_seconds)};
}

Duration VirtualNetwork::ring(std::span<const int> ranks, double bytes, Duration ready) {
  const auto node = [this](int rank) { return node_of(rank); };
  const bool several = std::ranges::adjacent_find(ranks, std::ranges::not_equal_to(), node) != ranks.end();
  return together(ranks, bytes, ready, [several](int beside) {
    return Fractions{.through_intra = beside > 1 ? 1.0 : 0.0, .across = several ? 1.0 / beside : 0.0};
  });
}

Duration VirtualNetwork::exchange(std::span<const int> ranks, double bytes, Duration ready) {
  const auto others = static_cast<double>(ranks.size()) - 1;
  return together(ranks, bytes, ready, [others](int beside) {
    const double inside = others > 0 ? (beside - 1) / others : 0;
    return Fractions{.through_intra = inside, .across = others > 0 ? 1 - inside : 0};
  });
}

Duration VirtualNetwork::together(std::span<const int> ranks, double bytes, Duration ready,
                                  const std::function<Fractions(int beside)>& fractions) {
  std::map<int, int> members;  // ranks per node
  double slow = 1;
  for (const int rank : ranks) {
    ++members[node_of(rank)];
    slow = std::max(slow, slowness(node_of(rank)));
  }
  const double size = bytes * slow;
  struct Share {
    Port* port;
    Duration busy;
  };
  std::vector<Share> of_ranks;
  Duration begin = ready;
  for (const int rank : ranks) {
    const auto [through_intra, across] = fractions(members[node_of(rank)]);
    Ports& ports = ranks_[static_cast<std::size_t>(rank)];
    const auto use = [&](Port& port, double seconds) {
      if (seconds <= 0) return;
      of_ranks.push_back({&port, duration(seconds)});
      begin = std::max({begin, port.out[rings], port.in[rings]});
    };
    use(ports[intra], seconds_of(size * through_intra, links_.intra_node.bytes_per_second));
    use(ports[inter], seconds_of(size * across, links_.inter_node.bytes_per_second));
    SentVolume& sent = sent_[static_cast<std::size_t>(rank)];
    sent.ring_bytes_inter += bytes * across;
    sent.ring_bytes_intra += bytes * (1 - across);
  }
  Duration end = begin;
  for (const Share& share : of_ranks) {
    end = std::max(
        {end, take(share.port->out, rings, begin, share.busy), take(share.port->in, rings, begin, share.busy)});
  }
  for (const auto& [node, beside] : members) {
    Ports& ports = node_ports_[static_cast<std::size_t>(node)];
    const double across = beside * fractions(beside).across, inside = beside - across;
    const Duration bus = duration(seconds_of(size * inside, links_.intra_node.node_bytes_per_second));
    const Duration nic = duration(seconds_of(size * across, links_.inter_node.node_bytes_per_second));
    if (inside > 0) end = std::max(end, take(ports[intra].out, rings, begin, bus));
    if (across > 0)
      end = std::max({end, take(ports[inter].out, rings, begin, nic), take(ports[inter].in, rings, begin, nic)});
  }
  return end;
}

}  // namespace ranvier::runtime

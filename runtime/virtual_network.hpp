// The links of a cluster in virtual time. Each rank has a port for each class of links and direction, each node a NIC
// for each direction and a bus inside; whoever sends waits for them in order. A message costs the same few steps
// whatever else is under way: each port knows when it is free, and keeps no list of messages. Rings of a team wait for
// each other likewise; with messages they share ports half and half. One thread.
#pragma once

#include "runtime/clock.hpp"
#include "runtime/links.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ranvier::runtime {

class VirtualNetwork {
 public:
  /// The node of each rank, counted from 0. Rates of 0 bound nothing. `slowness` says by node how many times as long a
  /// byte takes on its links; missing ones: 1.
  VirtualNetwork(std::vector<int> node_of, const Links& links, std::vector<double> slowness = {});

  struct Passage {
    Duration left{};     ///< all bytes have left the sender
    Duration arrived{};  ///< all are there
  };
  /// Bytes from rank to rank, on their way from `ready` on. Calls come in the order of time.
  [[nodiscard]] Passage carry(int from, int to, std::size_t bytes, Duration ready);

  /// When ranks that begin together have each sent and received so many bytes in rings over all of them, in which each
  /// node has one way in and one way out, by whichever rank's port: as NCCL does. Latencies are not counted.
  [[nodiscard]] Duration ring(std::span<const int> ranks, double bytes, Duration ready);

  [[nodiscard]] int node_of(int rank) const { return node_of_.at(static_cast<std::size_t>(rank)); }
  [[nodiscard]] int nodes() const noexcept { return nodes_; }
  [[nodiscard]] const Links& links() const noexcept { return links_; }
  [[nodiscard]] Duration latency(int from, int to) const;

  struct Sent {
    double bytes_intra = 0, bytes_inter = 0;  ///< in messages
    std::uint64_t messages = 0;
    double ring_bytes_intra = 0, ring_bytes_inter = 0;  ///< in rings, beside those
  };
  [[nodiscard]] const Sent& sent(int rank) const { return sent_.at(static_cast<std::size_t>(rank)); }

 private:
  enum Class { intra, inter, classes };
  enum Kind { messages, rings, kinds };
  /// Until when a direction of a port is busy with what it was given, by kind.
  using Direction = std::array<Duration, kinds>;
  struct Port {
    Direction out{}, in{};
  };
  using Ports = std::array<Port, classes>;

  [[nodiscard]] static Duration take(Direction& direction, Kind kind, Duration ready, Duration busy);
  [[nodiscard]] double slowness(int node) const;

  std::vector<int> node_of_;
  int nodes_ = 0;
  Links links_;
  std::vector<double> slowness_;
  std::vector<Ports> ranks_, node_ports_;
  std::vector<Sent> sent_;
};

}  // namespace ranvier::runtime

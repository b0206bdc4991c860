// Links of a cluster in virtual time. Each rank has a port per link class and direction; each node has a NIC per
// direction and an internal bus. Senders wait for them in order. A message costs constant time: ports store when they
// are free, not their messages. Rings of a team queue the same way; rings and messages share a port half and half.
// One thread.
#pragma once

#include "runtime/machine/machine_profile.hpp"
#include "runtime/simulation/virtual_time.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace ranvier::runtime {

class VirtualNetwork {
 public:
  /// `node_of`: node of each rank, starting at 0. Rates of 0 mean no limit. `slowness`: by node, factor on the time
  /// per byte on its links; missing ones: 1.
  VirtualNetwork(std::vector<int> node_of, const Links& links, std::vector<double> slowness = {});

  struct Passage {
    Duration left{};     ///< time when all bytes have left the sender
    Duration arrived{};  ///< time when all bytes have arrived
  };
  /// Sends bytes from rank to rank, starting at `ready`. Calls come in the order of time.
  [[nodiscard]] Passage carry(int from, int to, std::size_t bytes, Duration ready);

  /// End of rings over all these ranks in which each rank sends and receives `bytes`, starting at `ready`. As in
  /// NCCL, each ring has one path into each node and one out of it. Latencies are not included.
  [[nodiscard]] Duration ring(std::span<const int> ranks, double bytes, Duration ready);
  /// The same for an exchange in which each rank sends `bytes` in equal parts to all others. It queues like a ring.
  [[nodiscard]] Duration exchange(std::span<const int> ranks, double bytes, Duration ready);

  [[nodiscard]] int node_of(int rank) const { return node_of_.at(static_cast<std::size_t>(rank)); }
  [[nodiscard]] int nodes() const noexcept { return nodes_; }
  [[nodiscard]] const Links& links() const noexcept { return links_; }
  [[nodiscard]] Duration latency(int from, int to) const;

  struct SentVolume {
    double bytes_intra = 0, bytes_inter = 0;  ///< as messages
    std::uint64_t messages = 0;
    double ring_bytes_intra = 0, ring_bytes_inter = 0;  ///< in rings and exchanges, not included above
  };
  [[nodiscard]] const SentVolume& sent(int rank) const { return sent_.at(static_cast<std::size_t>(rank)); }

 private:
  enum Class { intra, inter, classes };
  enum Kind { messages, rings, kinds };
  /// Busy-until times of one direction of a port, by kind.
  using Direction = std::array<Duration, kinds>;
  struct Port {
    Direction out{}, in{};
  };
  using Ports = std::array<Port, classes>;

  /// Bytes of a rank per class of links, as fractions of the bytes that it sends.
  struct Fractions {
    double through_intra = 0;  ///< through its port inside the node
    double across = 0;         ///< to other nodes
  };
  /// `fractions` takes the number of these ranks on the rank's node, itself included.
  [[nodiscard]] Duration together(std::span<const int> ranks, double bytes, Duration ready,
                                  const std::function<Fractions(int members)>& fractions);
  [[nodiscard]] static Duration take(Direction& direction, Kind kind, Duration ready, Duration busy);
  [[nodiscard]] double slowness(int node) const;

  std::vector<int> node_of_;
  int nodes_ = 0;
  Links links_;
  std::vector<double> slowness_;
  std::vector<Ports> ranks_, node_ports_;
  std::vector<SentVolume> sent_;
};

}  // namespace ranvier::runtime

// Performance of a cluster's links. Plain data; any thread.
#pragma once

namespace ranvier::runtime {

/// One class of links, full duplex; rates are per direction.
struct Link {
  double latency_seconds = 0;        ///< time before the first byte of a message arrives
  double bytes_per_second = 0;       ///< rate of one rank
  double node_bytes_per_second = 0;  ///< total rate of all ranks of a node

  [[nodiscard]] bool measured() const noexcept { return bytes_per_second > 0; }

  friend bool operator==(const Link&, const Link&) = default;
};

struct Links {
  Link intra_node;  ///< between ranks of one node
  Link inter_node;  ///< between nodes

  friend bool operator==(const Links&, const Links&) = default;
};

}  // namespace ranvier::runtime

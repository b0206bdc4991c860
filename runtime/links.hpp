// What the links of a cluster do, as data.
#pragma once

namespace ranvier::runtime {

/// One class of links. Each carries both directions at once; figures are for one direction.
struct Link {
  double latency_seconds = 0;        ///< what a message costs before its first byte
  double bytes_per_second = 0;       ///< of one rank
  double node_bytes_per_second = 0;  ///< of all ranks of a node together

  [[nodiscard]] bool measured() const noexcept { return bytes_per_second > 0; }

  friend bool operator==(const Link&, const Link&) = default;
};

struct Links {
  Link intra_node;  ///< between ranks of one node
  Link inter_node;  ///< between nodes

  friend bool operator==(const Links&, const Links&) = default;
};

}  // namespace ranvier::runtime

// Measures the links of collectives/plans/link_file.hpp through the transport of training. Loop thread only.
#pragma once

#include "apps/bench/bench_rank.hpp"
#include "collectives/plans/link_file.hpp"

#include <span>

namespace ranvier::apps {

/// Collective; returns the same on all ranks. `node_of`: node by rank. Link classes that do not occur stay unmeasured.
///
///   latency_seconds        half of a round trip of 8 bytes between two ranks
///   bytes_per_second       per direction, both ranks sending to each other at the same time, messages of 1 MiB
///   node_bytes_per_second  total of a node's ranks, each sending to one and receiving from another rank: within a
///                          node along a ring; between nodes to the rank with the same local rank on the next node
///
/// Takes about `seconds`, longer on slow links.
[[nodiscard]] collectives::Links measure_links(BenchRank& rank, std::span<const int> node_of, double seconds);

}  // namespace ranvier::apps

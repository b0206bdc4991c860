// Measures what collectives/link_file.hpp describes, through the transport that training uses. Loop thread only.
#pragma once

#include "apps/bench/bench_rank.hpp"
#include "collectives/link_file.hpp"

#include <span>

namespace ranvier::apps {

/// All ranks call it alike, and get the same. `node_of` by rank; classes that there are no links of stay
/// unmeasured.
///
///   latency_seconds        half of a round trip of 8 bytes between two ranks
///   bytes_per_second       of those two, each sending to the other at the same time, messages of 1 MiB
///   node_bytes_per_second  of all ranks of a node together, each sending to one and receiving from another: inside
///                          every node round a ring; between nodes to the rank with the same place on the next one
///
/// Takes about `seconds`, more where a few messages take longer.
[[nodiscard]] collectives::Links measure_links(BenchRank& rank, std::span<const int> node_of, double seconds);

}  // namespace ranvier::apps

#include "collectives/plans/direct.hpp"

#include <utility>

namespace ranvier::collectives {

void direct_exchange(Plan& plan, const Topology& topology, const GatherShape& shape) {
  const int ranks = topology.ranks();
  const std::size_t half = plan.elements / 2;
  const auto slice = [&](int rank) {
    return chunk_of_piece(half, ranks, plan.piece(rank), shape.chunks, shape.chunk);
  };
  if (slice(0).count == 0) return;
  for (int rank = 0; rank < ranks; ++rank) {
    if (!shape.wants(rank)) continue;
    for (int distance = 1; distance < ranks; ++distance) {
      const int to = (rank + distance) % ranks, from = (rank + ranks - distance) % ranks;
      const Range sent = slice(to), received = slice(from);
      plan.ranks[static_cast<std::size_t>(rank)].push_back(
          {{Action::receive, from, {half + received.begin, received.count}}, {Action::send, to, sent}});
    }
  }
}

}  // namespace ranvier::collectives

#include "collectives/ring.hpp"

#include <fmt/core.h>

namespace ranvier::collectives {

namespace {

/// Appends the P - 1 steps in which pieces travel once round the ring. Rank r sends piece r - lag first.
void add_round(Plan& plan, int lag, Action arrival, int chunks, int chunk) {
  const int ranks = static_cast<int>(plan.ranks.size());
  const auto slice = [&](int piece) {
    return chunk_of_piece(plan.elements, ranks, (piece % ranks + ranks) % ranks, chunks, chunk);
  };
  if (slice(0).count == 0) return;
  for (int rank = 0; rank < ranks; ++rank) {
    const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    for (int step = 0; step < ranks - 1; ++step) {
      plan.ranks[rank].push_back(
          {{arrival, previous, slice(rank - lag - step - 1)}, {Action::send, next, slice(rank - lag - step)}});
    }
  }
}

Plan empty_plan(const char* name, int ranks, std::size_t elements, int chunks, int chunk) {
  Plan plan{fmt::format("{} of {} ranks, {} elements, chunk {} of {}", name, ranks, elements, chunk, chunks),
            elements,
            {}};
  plan.ranks.resize(ranks);
  return plan;
}

}  // namespace

Plan ring_reduce_scatter(int ranks, std::size_t elements, int chunks, int chunk) {
  Plan plan = empty_plan("ring reduce-scatter", ranks, elements, chunks, chunk);
  add_round(plan, 1, Action::receive_add, chunks, chunk);
  return plan;
}

Plan ring_all_gather(int ranks, std::size_t elements, int chunks, int chunk) {
  Plan plan = empty_plan("ring all-gather", ranks, elements, chunks, chunk);
  add_round(plan, 0, Action::receive, chunks, chunk);
  return plan;
}

Plan ring_all_reduce(int ranks, std::size_t elements, int chunks, int chunk) {
  Plan plan = empty_plan("ring all-reduce", ranks, elements, chunks, chunk);
  add_round(plan, 1, Action::receive_add, chunks, chunk);
  add_round(plan, 0, Action::receive, chunks, chunk);
  return plan;
}

}  // namespace ranvier::collectives

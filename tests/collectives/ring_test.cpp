#include "collectives/plans/ring.hpp"
#include "tests/collectives/plan_check.hpp"
#include "tests/test.hpp"

using namespace ranvier::collectives;

namespace {

std::size_t sent_by(const Plan& plan, int rank) {
  std::size_t sent = 0;
  for (const Step& step : plan.ranks[rank])
    for (const Operation& operation : step) sent += operation.action == Action::send ? operation.range.count : 0;
  return sent;
}

}  // namespace

TEST_CASE("rings of 1 to 9 ranks pass the checker for any size and any number of chunks") {
  for (int ranks = 1; ranks <= 9; ++ranks)
    for (const std::size_t length : {0, 1, 2, 5, 48})
      for (const int chunks : {1, 2, 3, 7})
        for (int chunk = 0; chunk < chunks; ++chunk) {
          const Topology topology = Topology::regular(ranks, 1);
          check_reduce_scatter(ring_reduce_scatter(topology, ranks * length, chunks, chunk), chunks, chunk);
          check_all_gather(ring_all_gather(topology, ranks * length, chunks, chunk), chunks, chunk);
          check_all_reduce(ring_all_reduce(topology, ranks * length, chunks, chunk), chunks, chunk);
        }
}

TEST_CASE("rings have the steps and element counts of their header") {
  for (std::size_t ranks = 1; ranks <= 9; ++ranks) {
    const std::size_t elements = 6 * ranks, hops = ranks - 1;
    const Topology topology = Topology::regular(ranks, 1);
    const Plan scatter = ring_reduce_scatter(topology, elements), gather = ring_all_gather(topology, elements);
    const Plan reduce = ring_all_reduce(topology, elements);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      CHECK(scatter.ranks[rank].size() == hops);
      CHECK(gather.ranks[rank].size() == hops);
      CHECK(reduce.ranks[rank].size() == 2 * hops);
      CHECK(sent_by(scatter, rank) == 6 * hops);
      CHECK(sent_by(gather, rank) == 6 * hops);
      CHECK(sent_by(reduce, rank) == 12 * hops);
    }
  }
}

TEST_CASE("the sum of a piece starts at the rank after its owner, for any number of chunks") {
  constexpr int ranks = 4, chunks = 3;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const Plan plan = ring_reduce_scatter(Topology::regular(ranks, 1), ranks * 8, chunks, chunk);
    for (int piece = 0; piece < ranks; ++piece) {
      const Step& first = plan.ranks[(piece + 1) % ranks][0];
      const Operation sends = {Action::send, (piece + 2) % ranks,
                               chunk_of_piece(ranks * 8, ranks, piece, chunks, chunk)};
      CHECK(first[1].action == Action::send);
      CHECK(first[1].peer == sends.peer);
      CHECK(first[1].range == sends.range);
    }
  }
}

TEST_CASE("one rank and no elements take no steps") {
  CHECK(ring_all_reduce(Topology::regular(1, 1), 10).ranks[0].empty());
  CHECK(ring_all_reduce(Topology::regular(3, 1), 0).ranks[2].empty());
  CHECK(ring_all_reduce(Topology::regular(3, 1), 3, 2, 0).ranks[2].empty());
}

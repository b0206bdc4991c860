// Agreements of all ranks, and the waits that a rank reports meanwhile.
#include "actors/base/consensus.hpp"
#include "runtime/simulation/simulation.hpp"
#include "tests/test.hpp"

using namespace ranvier;

TEST_CASE("all ranks get the contributions of all, in one agreement after another") {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    for (const std::uint64_t seed : test::seeds(20)) {
      INFO("ranks ", ranks, ", seed ", seed);
      runtime::Simulation simulation(ranks, {.seed = seed});
      std::vector<std::unique_ptr<actors::Consensus>> all;
      std::vector<std::vector<double>> values(static_cast<std::size_t>(ranks));
      for (int r = 0; r < ranks; ++r) {
        all.push_back(std::make_unique<actors::Consensus>(simulation.loop(r), simulation.transport(r)));
        const auto mine = static_cast<std::size_t>(r);
        values[mine].assign(static_cast<std::size_t>(ranks), 0.0);
        values[mine][mine] = r + 0.5;
        CHECK(all.back()->waits().empty());
        all.back()->agree(values[mine], [&, r, mine] {
          CHECK(all[mine]->waits().empty());
          // Another one, with another size, may follow at once.
          values[mine].assign(2, 0.0);
          if (r == ranks - 1) values[mine][1] = -7.25;
          all[mine]->agree(values[mine], [&simulation, r] { simulation.loop(r).stop(); });
        });
        REQUIRE(all.back()->waits().size() == 1);
        CHECK(all.back()->waits().front().since == simulation.loop(r).now());
      }
      simulation.run();
      for (const auto& of_rank : values) CHECK(of_rank == std::vector<double>{0.0, -7.25});
    }
  }
}

TEST_CASE("if two ranks exchange messages for an agreement, each names the other") {
  for (int ranks = 1; ranks <= 17; ++ranks) {
    CAPTURE(ranks);
    runtime::Simulation simulation(ranks, {.seed = 1});
    std::vector<std::vector<int>> peers;
    for (int r = 0; r < ranks; ++r)
      peers.push_back(actors::Consensus(simulation.loop(r), simulation.transport(r)).peers());
    std::size_t named = 0;
    for (int r = 0; r < ranks; ++r) {
      for (const int peer : peers[static_cast<std::size_t>(r)]) {
        const auto& theirs = peers[static_cast<std::size_t>(peer)];
        CHECK(std::find(theirs.begin(), theirs.end(), r) != theirs.end());
        ++named;
      }
    }
    CHECK(named == 2 * static_cast<std::size_t>(ranks - 1));  // a tree
  }
}

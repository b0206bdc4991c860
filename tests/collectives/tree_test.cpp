#include "collectives/plans/recursive.hpp"
#include "tests/collectives/plan_check.hpp"
#include "tests/test.hpp"

#include <bit>

using namespace ranvier::collectives;

TEST_CASE("trees of 1 to 17 ranks pass the checker for any size, in the number of steps of their header") {
  for (unsigned ranks = 1; ranks <= 17; ++ranks)
    for (const std::size_t elements : {0, 1, 2, 13}) {
      const Plan plan = tree_all_reduce(static_cast<int>(ranks), elements);
      check_all_reduce(plan);
      if (elements > 0) CHECK(plan.ranks[0].size() == 2 * std::bit_width(ranks - 1));
      for (unsigned rank = 0; rank < ranks; ++rank) {
        const Plan one = tree_all_reduce(static_cast<int>(ranks), elements, static_cast<int>(rank));
        CHECK(one.ranks.size() == ranks);
        for (unsigned other = 0; other < ranks; ++other) {
          const std::vector<Step> wanted = other == rank ? plan.ranks[other] : std::vector<Step>();
          REQUIRE(one.ranks[other].size() == wanted.size());
          for (std::size_t step = 0; step < wanted.size(); ++step) {
            REQUIRE(one.ranks[other][step].size() == wanted[step].size());
            for (std::size_t i = 0; i < wanted[step].size(); ++i) {
              CHECK(one.ranks[other][step][i].action == wanted[step][i].action);
              CHECK(one.ranks[other][step][i].peer == wanted[step][i].peer);
              CHECK(one.ranks[other][step][i].range == wanted[step][i].range);
            }
          }
        }
      }
    }
}

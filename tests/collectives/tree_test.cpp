#include "collectives/tree.hpp"

#include <doctest/doctest.h>

#include <bit>

using namespace ranvier::collectives;

TEST_CASE("trees of 1 to 17 ranks pass the checker for any size, in the steps that their header says") {
  for (unsigned ranks = 1; ranks <= 17; ++ranks) {
    for (const std::size_t elements : {0, 1, 2, 13}) {
      const Plan plan = tree_all_reduce(static_cast<int>(ranks), elements);
      check_all_reduce(plan);
      if (elements > 0) CHECK(plan.ranks[0].size() == 2 * std::bit_width(ranks - 1));
    }
  }
}

#include "actors/states/matrix_owners.hpp"

#include "runtime/base/philox.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using actors::matrix_owners;

namespace {

double highest_load(const std::vector<double>& costs, const std::vector<int>& owners, int ranks) {
  std::vector<double> loads(static_cast<std::size_t>(ranks));
  for (std::size_t i = 0; i < costs.size(); ++i) loads.at(static_cast<std::size_t>(owners[i])) += costs[i];
  return *std::max_element(loads.begin(), loads.end());
}

/// The best assignment's highest load.
double lowest_load(const std::vector<double>& costs, int ranks) {
  std::vector<int> owners(costs.size());
  double lowest = std::numeric_limits<double>::infinity();
  for (;;) {
    lowest = std::min(lowest, highest_load(costs, owners, ranks));
    std::size_t next = 0;
    while (next < owners.size() && ++owners[next] == ranks) owners[next++] = 0;
    if (next == owners.size()) return lowest;
  }
}

}  // namespace

TEST_CASE("the highest cost goes to the least loaded rank; ties go by the order of items and ranks") {
  struct Case {
    std::vector<double> costs;
    int ranks;
    std::vector<int> owners;
  };
  const std::vector<Case> cases{{{}, 3, {}},
                                {{1, 2, 3}, 1, {0, 0, 0}},
                                {{1, 2, 3}, 5, {2, 1, 0}},
                                {{3, 3, 2, 2, 2}, 2, {0, 1, 0, 1, 0}},
                                {{5, 5, 5, 5}, 3, {0, 1, 2, 0}},
                                {{1, 1, 8, 1, 4, 4}, 2, {0, 1, 0, 0, 1, 1}}};
  for (const Case& c : cases) {
    CAPTURE_ALL(c.costs.size(), c.ranks);
    CHECK(matrix_owners(c.costs, c.ranks) == c.owners);
  }
  CHECK(tests::says(tests::error_of([] { static_cast<void>(matrix_owners({}, 0)); }), ErrorCode::internal,
                    "0 ranks"));
}

TEST_CASE("the most loaded owner has at most 4/3 - 1/(3 ranks) of the lowest possible load") {
  const auto key = runtime::philox_key(5, runtime::RandomPurpose::test);
  for (std::uint32_t round = 0; round < 100; ++round) {
    CAPTURE(round);
    const auto bits = runtime::philox(key, {round, 0, 0, 0});
    const int ranks = 2 + static_cast<int>(bits[0] % 3);
    std::vector<double> costs;
    for (std::uint32_t i = 0; i < 1 + bits[1] % 6; ++i)
      costs.push_back(1 + runtime::philox(key, {round, i, 1, 0})[0] % 20);
    const double bound = 4.0 / 3 - 1.0 / (3 * ranks);
    CHECK(highest_load(costs, matrix_owners(costs, ranks), ranks) <= bound * lowest_load(costs, ranks) + 1e-9);
  }
}

TEST_CASE("a parameter costs the FLOPs of all its matrices, wide or tall") {
  models::ParameterSpec parameter{.name = "weight", .shape = {5, 12}};
  CHECK(actors::orthogonalization_flops(parameter) == 0);
  parameter.matrices = {{0, 2, 0, 12}, {2, 3, 0, 12}};
  CHECK(actors::orthogonalization_flops(parameter) ==
        20.0 * (2 * 2 * 12 + 3 * 3 * 12) + 10.0 * (2 * 2 * 2 + 3 * 3 * 3));
  parameter.matrices = {{0, 5, 0, 3}};
  CHECK(actors::orthogonalization_flops(parameter) == 20.0 * 3 * 3 * 5 + 10.0 * 3 * 3 * 3);
}

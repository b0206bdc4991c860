#include "runtime/base/error.hpp"
#include "runtime/base/grid.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::runtime;

TEST_CASE("ranks of a column are neighbours, and position and rank are each other's inverse") {
  const Grid grid({.g_inter = 3, .g_data = 2}, 6);
  CHECK(grid.column(0) == std::vector{0, 1});
  CHECK(grid.column(2) == std::vector{4, 5});
  CHECK(grid.pipeline(0) == std::vector{0, 2, 4});
  CHECK(grid.pipeline(1) == std::vector{1, 3, 5});
  for (int rank = 0; rank < 6; ++rank) CHECK(grid.rank(grid.position(rank)) == rank);
  CHECK(grid.position(3) == Position{.stage = 1, .row = 1});
}

TEST_CASE("a grid of one rank is valid") {
  const Grid grid({}, 1);
  CHECK(grid.column(0) == std::vector{0});
  CHECK(grid.pipeline(0) == std::vector{0});
}

TEST_CASE("a grid that does not match the ranks names flags, values and remedy") {
  const auto check = [](GridShape shape, int ranks, const auto&... parts) {
    CHECK(tests::says(tests::error_of([&] { const Grid grid(shape, ranks); }), ErrorCode::usage, parts...));
  };
  check({.g_inter = 2, .g_data = 3}, 4, "`g_inter` 2", "`g_data` 3", "mpirun -n 6", "4");
  check({.g_inter = 0, .g_data = 1}, 0, "`g_inter` 0");
  check({.g_inter = 1, .g_data = -1}, 1, "`g_data` -1");
  check({.g_inter = 65536, .g_data = 65536}, 0, "4294967296");
}

TEST_CASE("the number of rows follows from ranks and stages") {
  CHECK(complete_grid({.g_inter = 3, .g_data = 0}, 12).g_data == 4);
  CHECK(complete_grid({.g_inter = 3, .g_data = 4}, 12).g_data == 4);
  CHECK_THROWS_WITH_AS((void)complete_grid({.g_inter = 3, .g_data = 0}, 4),
                       "`g_inter` 3 does not divide the number of ranks, 4; use a divisor, or a multiple of 3 "
                       "ranks",
                       Error);
  CHECK_THROWS_WITH_AS((void)complete_grid({.g_inter = 2, .g_data = 3}, 4, "`world`"),
                       "`g_inter` 2 x `g_data` 3 needs 6 ranks, but the job has 4; use `world` 6 or another grid",
                       Error);
}

TEST_CASE("rows share a batch equally") {
  CHECK_FALSE(batch_problem(8, 4));
  CHECK(batch_problem(6, 4) == "`batch_size` 6 is not divisible by `g_data` 4; use a multiple, such as 8");
  CHECK(batch_problem(0, 4) == "`batch_size` 0 is not divisible by `g_data` 4; use a multiple, such as 4");
}

TEST_CASE("positions outside the grid are refused") {
  const Grid grid({.g_inter = 2, .g_data = 2}, 4);
  CHECK_THROWS_AS((void)grid.position(4), Error);
  CHECK_THROWS_AS((void)grid.position(-1), Error);
  CHECK_THROWS_AS((void)grid.rank({.stage = 0, .row = 2}), Error);
  CHECK_THROWS_AS((void)grid.column(2), Error);
  CHECK_THROWS_AS((void)grid.pipeline(-1), Error);
}

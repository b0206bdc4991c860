#include "runtime/base/arithmetic.hpp"
#include "tests/test.hpp"

using namespace ranvier::runtime;

TEST_CASE("counts are rounded up to the next multiple, and multiples stay") {
  static_assert(ceil_divide(0, 4) == 0 && ceil_divide(1, 4) == 1 && ceil_divide(8, 4) == 2 &&
                ceil_divide(9, 4) == 3);
  static_assert(round_up(std::size_t{0}, 64) == 0 && round_up(std::size_t{64}, 64) == 64);
  CHECK(round_up(std::size_t{65}, 64) == 128);
}

TEST_CASE("the median is the larger of two middle values, and the lower median the smaller") {
  CHECK(median({5, 1, 9}) == 5);
  CHECK(lower_median({5, 1, 9}) == 5);
  CHECK(median({7, 1, 9, 3}) == 7);
  CHECK(lower_median({7, 1, 9, 3}) == 3);
  CHECK(median({2}) == 2);
  CHECK(lower_median({2}) == 2);
}

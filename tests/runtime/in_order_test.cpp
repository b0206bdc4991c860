#include "runtime/loop/in_order.hpp"

#include "runtime/base/error.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using runtime::InOrder;

TEST_CASE("handlers run in the order of their numbers, also those that others add, and again after a period") {
  CAPTURE(test::random_seed());
  std::mt19937_64 random(test::random_seed());
  InOrder order(20);
  for (int period = 0; period < 3; ++period) {
    std::vector<std::uint64_t> numbers(19), ran;
    std::iota(numbers.begin(), numbers.end(), std::uint64_t{0});
    std::ranges::shuffle(numbers, random);
    for (const std::uint64_t number : numbers)
      order.run(number, [&, number] {
        ran.push_back(number);
        if (number == 7) order.run(19, [&] { ran.push_back(19); });
      });
    CHECK(ran.size() == 20);
    CHECK(std::ranges::is_sorted(ran));
  }
}

TEST_CASE("a number that waits already, or is not in the period, is refused") {
  InOrder order(3);
  order.run(1, [] {});
  CHECK_THROWS_AS(order.run(1, [] {}), Error);
  CHECK_THROWS_AS(order.run(3, [] {}), Error);
}

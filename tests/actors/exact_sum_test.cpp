#include "actors/base/exact_sum.hpp"

#include "tests/test.hpp"

#include <bit>

using ranvier::actors::ExactSum;

namespace {

/// Sums on `ranks` ranks, each of which adds every `ranks`-th number.
double sum(const std::vector<double>& values, std::size_t ranks = 1) {
  std::array<double, ExactSum::words> all{};
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    ExactSum mine;
    for (std::size_t i = rank; i < values.size(); i += ranks) mine.add(values[i]);
    std::array<double, ExactSum::words> message;
    mine.write(message);
    for (std::size_t w = 0; w < all.size(); ++w) all[w] += message[w];
  }
  return ExactSum::read(all);
}

constexpr double infinite = std::numeric_limits<double>::infinity();
constexpr double largest = std::numeric_limits<double>::max();
constexpr double tiny = std::numeric_limits<double>::denorm_min();

}  // namespace

TEST_CASE("the sum of one number of any size is that number") {
  CHECK(sum({}) == 0);
  for (const double value : {0.0, 1.0, 0.1, 3e-310, tiny, 7 * tiny, std::numeric_limits<double>::min(), 1e-300,
                             1e300, largest, std::nextafter(1.0, 2.0), 4294967296.0, 4294967295.0})
    CHECK(sum({value}) == value);
  std::mt19937_64 random(7);
  for (int i = 0; i < 2000; ++i) {
    const double value = std::abs(std::bit_cast<double>(random()));
    if (!std::isfinite(value)) continue;
    CAPTURE(value);
    CHECK(sum({value}) == value);
    CHECK(sum({value / 2, value / 4, value / 4}) == value / 2 + value / 2);
  }
}

TEST_CASE("a sum is rounded once, to the nearest double, and ties go to the even one") {
  const double ulp = std::numeric_limits<double>::epsilon();
  CHECK(sum({1, ulp / 2}) == 1);
  CHECK(sum({1 + ulp, ulp / 2}) == 1 + 2 * ulp);
  CHECK(sum({1, ulp / 2, tiny}) == 1 + ulp);  // adding one by one gives 1
  CHECK(sum({1, ulp / 4, ulp / 4, tiny}) == 1 + ulp);
  CHECK(sum({1e300, 1, 1e-300}) == 1e300);
  CHECK(sum(std::vector<double>(1000, 0.1)) == 100);  // a loop gives 99.9999999999986
  CHECK(sum({tiny, tiny, tiny}) == 3 * tiny);
  // The sum of integers below 2^64 is known, and so is its rounding.
  std::mt19937_64 random(11);
  for (int i = 0; i < 500; ++i) {
    std::uint64_t whole = 0;
    std::vector<double> values;
    for (int v = 0; v < 20; ++v) {
      const std::uint64_t value = random() >> (random() % 50 + 11);
      whole += value;
      values.push_back(static_cast<double>(value));
    }
    CHECK(sum(values, 3) == static_cast<double>(whole));
    for (double& value : values) value = std::ldexp(value, -900);
    CHECK(sum(values, 3) == std::ldexp(static_cast<double>(whole), -900));
  }
}

TEST_CASE("order and number of ranks do not change any bit of a sum") {
  std::mt19937_64 random(3);
  std::lognormal_distribution<double> sizes(0, 40);
  std::vector<double> values(500);
  for (double& value : values) value = sizes(random);
  const double whole = sum(values);
  for (const std::size_t ranks : {2u, 7u, 500u}) CHECK(sum(values, ranks) == whole);
  std::shuffle(values.begin(), values.end(), random);
  CHECK(sum(values, 5) == whole);
  // The maximum number of messages: digits stay exact at their largest values.
  std::array<double, ExactSum::words> message;
  ExactSum most;
  most.add(std::ldexp(1.0, 64) - 2048);
  most.write(message);
  for (double& word : message) word *= static_cast<double>(ExactSum::max_messages);
  CHECK(ExactSum::read(message) == (std::ldexp(1.0, 64) - 2048) * static_cast<double>(ExactSum::max_messages));
}

TEST_CASE("an infinite or NaN term makes the sum infinite or NaN") {
  CHECK(sum({1, infinite, 2}, 2) == infinite);
  CHECK(std::isnan(sum({1, infinite, std::numeric_limits<double>::quiet_NaN()}, 3)));
  CHECK(sum({largest, largest}) == infinite);
  CHECK(sum({largest, largest, largest, largest}, 4) == infinite);
}

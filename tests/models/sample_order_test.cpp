#include "models/text/sample_order.hpp"
#include "tests/test.hpp"

using ranvier::models::SampleOrder;

namespace {

std::vector<std::int64_t> epoch_of(const SampleOrder& order, std::int64_t samples, std::int64_t epoch) {
  std::vector<std::int64_t> seen(static_cast<std::size_t>(samples));
  for (std::int64_t n = 0; n < samples; ++n) seen[static_cast<std::size_t>(n)] = order(epoch * samples + n);
  return seen;
}

}  // namespace

TEST_CASE("an epoch has every sample once, for any number of samples") {
  for (const std::int64_t samples : {1, 2, 3, 4, 5, 7, 16, 17, 63, 64, 65, 1000, 4096, 4097, 16385}) {
    const SampleOrder order(samples, 1234);
    for (const std::int64_t epoch : {0, 1, 2}) {
      CAPTURE(samples);
      auto seen = epoch_of(order, samples, epoch);
      std::sort(seen.begin(), seen.end());
      std::vector<std::int64_t> all(static_cast<std::size_t>(samples));
      std::iota(all.begin(), all.end(), 0);
      CHECK(seen == all);
    }
  }
}

TEST_CASE("epochs and seeds have separate orders") {
  const SampleOrder order(100, 1);
  CHECK(epoch_of(order, 100, 0) != epoch_of(order, 100, 1));
  CHECK(epoch_of(order, 100, 0) != epoch_of(SampleOrder(100, 2), 100, 0));
  CHECK(epoch_of(order, 100, 0) == epoch_of(SampleOrder(100, 1), 100, 0));
}

TEST_CASE("the order looks random: neighbors are far apart and each position is equally likely") {
  constexpr std::int64_t samples = 5000;
  const auto seen = epoch_of(SampleOrder(samples, 7), samples, 0);
  double distance = 0;
  for (std::size_t i = 1; i < seen.size(); ++i) distance += static_cast<double>(std::abs(seen[i] - seen[i - 1]));
  distance /= static_cast<double>(seen.size() - 1);
  CHECK(distance > 0.95 * samples / 3);  // the mean of |a - b| for two uniform positions is a third
  CHECK(distance < 1.05 * samples / 3);

  constexpr std::int64_t few = 5;
  constexpr int epochs = 5000;
  std::vector<int> count(few * few);
  const SampleOrder order(few, 99);
  for (std::int64_t n = 0; n < epochs * few; ++n) ++count[static_cast<std::size_t>(n % few * few + order(n))];
  for (const int times : count) {  // five standard deviations of a binomial with p = 1/5
    CHECK(times > epochs / 5 - 5 * 29);
    CHECK(times < epochs / 5 + 5 * 29);
  }
}

TEST_CASE("large data sets are permuted without a table") {
  constexpr std::int64_t samples = 3'000'000'000'000;
  const SampleOrder order(samples, 3);
  for (const std::int64_t n : {std::int64_t{0}, samples - 1, samples, 5 * samples + 17}) {
    CHECK(order(n) >= 0);
    CHECK(order(n) < samples);
  }
}

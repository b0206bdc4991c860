#include "runtime/base/error.hpp"
#include "runtime/device/device.hpp"
#include "runtime/kernels/momentum.hpp"
#include "tests/device_under_test.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::runtime;
using ranvier::tests::Bench;

namespace {

constexpr std::size_t momentum_elements = 3003;
const std::vector<DecaySegment> momentum_segments = {
    {0, 1000, true}, {1000, 2500, false}, {2501, momentum_elements, true}};
constexpr std::size_t outside = 2500;

std::vector<float> momentum_values(std::mt19937_64& random, float scale) {
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(momentum_elements);
  for (float& value : values) value = normal(random);
  return values;
}

/// Calls f(element, kept) for each element in segments.
template <typename F>
void for_elements(const UpdateOptions& options, F&& f) {
  for (const DecaySegment& segment : momentum_segments)
    for (std::size_t i = segment.begin; i < segment.end; ++i)
      f(i, segment.decays ? 1 - options.learning_rate * options.weight_decay : 1.0);
}

double largest_difference(const std::vector<float>& values, const std::vector<double>& expected) {
  double largest = 0;
  for (std::size_t i = 0; i < values.size(); ++i) largest = std::max(largest, std::abs(values[i] - expected[i]));
  return largest;
}

std::vector<double> doubles(const std::vector<float>& values) { return {values.begin(), values.end()}; }

}  // namespace

TEST_CASE("20 steps of SGD follow the formula in double, with and without momentum and decay") {
  CAPTURE(test::random_seed());
  std::mt19937_64 random(test::random_seed());
  const Bench bench(2);
  for (const bool with_momentum : {true, false}) {
    CAPTURE(with_momentum);
    const auto start = momentum_values(random, 1);
    const auto weights = bench.place(start), m = bench.place(std::vector<float>(momentum_elements, 0.5f));
    std::vector<double> w = doubles(start), expected_m(momentum_elements, 0.5);
    for (int step = 1; step <= 20; ++step) {
      const auto values = momentum_values(random, 10);
      const auto gradient = bench.place(values);
      const UpdateOptions options{
          .learning_rate = 1e-2, .weight_decay = 0.5, .momentum = 0.9, .step = step, .gradient_scale = 0.25};
      sgd(*bench.stream,
          {.weights = weights.data(), .m = with_momentum ? m.data() : nullptr, .gradient = gradient.data()},
          momentum_segments, options);
      for_elements(options, [&](std::size_t i, double kept) {
        const double g = values[i] * 0.25;
        if (with_momentum) expected_m[i] = 0.9 * expected_m[i] + g;
        w[i] = w[i] * kept - 1e-2 * (with_momentum ? expected_m[i] : g);
      });
    }
    CHECK(largest_difference(weights.read(), w) < 1e-5);  // weights are around 2, m around 10
    CHECK(largest_difference(m.read(), expected_m) < 1e-5);
    CHECK(weights.read()[outside] == start[outside]);
    CHECK(m.read()[outside] == 0.5f);
  }
}

TEST_CASE("20 steps of Muon's momentum follow the formula in double") {
  CAPTURE(test::random_seed());
  std::mt19937_64 random(test::random_seed());
  const Bench bench(2);
  const auto m = bench.place(std::vector<float>(momentum_elements, 0.5f));
  const auto update = bench.place(std::vector<float>(momentum_elements, 7.0f));
  std::vector<double> expected_m(momentum_elements, 0.5), expected(momentum_elements, 7);
  for (int step = 1; step <= 20; ++step) {
    const auto values = momentum_values(random, 10);
    const auto gradient = bench.place(values);
    const UpdateOptions options{.momentum = 0.9, .step = step, .gradient_scale = 0.25};
    muon_momentum(*bench.stream, {.m = m.data(), .gradient = gradient.data()}, update.data(), momentum_segments,
                  options);
    for_elements(options, [&](std::size_t i, double) {
      const double g = values[i] * 0.25;
      expected_m[i] += (1 - 0.9) * (g - expected_m[i]);
      expected[i] = g + 0.9 * (expected_m[i] - g);
    });
  }
  CHECK(largest_difference(m.read(), expected_m) < 1e-5);
  CHECK(largest_difference(update.read(), expected) < 1e-5);
  CHECK(update.read()[outside] == 7.0f);
  CHECK(m.read()[outside] == 0.5f);
}

TEST_CASE("Muon's update changes weights and their working copy, regardless of the gradient's scale") {
  CAPTURE(test::random_seed());
  std::mt19937_64 random(test::random_seed());
  const Bench bench(2);
  const auto start = momentum_values(random, 1), change = momentum_values(random, 1);
  const auto weights = bench.place(start), update = bench.place(change);
  const auto working = bench.place(std::vector<F16>(momentum_elements));
  const UpdateOptions options{.learning_rate = 0.1, .weight_decay = 0.5, .gradient_scale = 8};
  muon_apply(*bench.stream, {.weights = weights.data(), .working = working.data(), .working_dtype = DType::f16},
             update.data(), momentum_segments, options);
  std::vector<double> expected = doubles(start);
  for_elements(options, [&](std::size_t i, double kept) { expected[i] = expected[i] * kept - 0.1 * change[i]; });
  const auto result = weights.read();
  CHECK(largest_difference(result, expected) < 1e-6);
  CHECK(result[outside] == start[outside]);
  const auto copy = working.read();
  for (std::size_t i = 0; i < momentum_elements; ++i)
    CHECK(copy[i].bits == (i == outside ? 0 : from_float<F16>(result[i]).bits));
}

TEST_CASE("moving averages include new values by their coefficient, and use neither moments nor other options") {
  CAPTURE(test::random_seed());
  std::mt19937_64 random(test::random_seed());
  const Bench bench;
  for (const auto& average : {adamw, sgd}) {
    const auto start = momentum_values(random, 1), news = momentum_values(random, 1);
    const auto weights = bench.place(start), gradient = bench.place(news);
    const std::vector<float> nan(momentum_elements, std::numeric_limits<float>::quiet_NaN());
    const auto m = bench.place(nan), v = bench.place(nan);
    average(*bench.stream, {.weights = weights.data(), .m = m.data(), .v = v.data(), .gradient = gradient.data()},
            momentum_segments,
            {.learning_rate = 5,
             .beta1 = 3,
             .beta2 = 3,
             .epsilon = 2,
             .weight_decay = 3,
             .momentum = 2,
             .gradient_scale = 7,
             .average = 0.25});
    std::vector<double> expected = doubles(start);
    for_elements({}, [&](std::size_t i, double) { expected[i] = 0.75 * expected[i] + 0.25 * double{news[i]}; });
    CHECK(largest_difference(weights.read(), expected) < 1e-6);
    CHECK(weights.read()[outside] == start[outside]);
    for (const auto* moments : {&m, &v})
      for (const float value : moments->read()) CHECK(std::isnan(value));
  }
}

TEST_CASE("Muon refuses moving averages and a missing momentum, SGD a step before the first") {
  const Bench bench;
  const auto values = bench.place(std::vector<float>(10));
  const UpdateArrays arrays{.weights = values.data(), .m = values.data(), .gradient = values.data()};
  const std::vector<DecaySegment> segments = {{0, 10, true}};
  CHECK_THROWS_WITH_AS(muon_momentum(*bench.stream, arrays, values.data(), segments, {.average = 0.5}),
                       doctest::Contains("use sgd()"), Error);
  CHECK_THROWS_WITH_AS(muon_apply(*bench.stream, arrays, values.data(), segments, {.average = 0.5}),
                       doctest::Contains("use sgd()"), Error);
  CHECK_THROWS_WITH_AS(muon_momentum(*bench.stream, {.gradient = values.data()}, values.data(), segments, {}),
                       doctest::Contains("no momentum"), Error);
  CHECK_THROWS_WITH_AS(sgd(*bench.stream, arrays, segments, {.step = 0}), doctest::Contains("not 0"), Error);
}

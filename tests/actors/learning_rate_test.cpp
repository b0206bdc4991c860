#include "actors/rank/learning_rate.hpp"

#include "tests/test.hpp"

using namespace ranvier::actors;
using Decay = LearningRateOptions::Decay;

TEST_CASE("without warm-up a constant learning rate is the given one at every step") {
  const LearningRateOptions options{.peak = 3e-4, .least = 1e-5, .steps = 10};
  for (int step = 1; step <= 10; ++step) CHECK(learning_rate(options, step) == 3e-4);
}

TEST_CASE("warm-up rises linearly to the peak") {
  const LearningRateOptions options{.peak = 1.0, .warmup_steps = 4, .steps = 10};
  CHECK(learning_rate(options, 1) == doctest::Approx(0.25));
  CHECK(learning_rate(options, 4) == doctest::Approx(1.0));
}

TEST_CASE("Muon's learning rate is another peak with the same warm-up and decay, or the same") {
  CHECK(muon_rate({.peak = 1e-3}) == 1);
  CHECK(muon_rate({.peak = 1e-3, .muon_peak = 0.02}) == doctest::Approx(20));
  CHECK(muon_rate({.peak = 0, .muon_peak = 0.02}) == 1);
}

TEST_CASE("decay falls from the peak to the minimum learning rate at the last step") {
  for (const Decay decay : {Decay::linear, Decay::cosine}) {
    const LearningRateOptions options{.peak = 1.0, .least = 0.1, .warmup_steps = 2, .steps = 13, .decay = decay};
    CHECK(learning_rate(options, 3) == doctest::Approx(1.0));
    CHECK(learning_rate(options, 8) == doctest::Approx(0.55));
    CHECK(learning_rate(options, 13) == doctest::Approx(0.1));
    for (int step = 4; step <= 13; ++step) CHECK(learning_rate(options, step) < learning_rate(options, step - 1));
  }
}

TEST_CASE("a run with warm-up only does not divide by a decay of zero steps") {
  const LearningRateOptions options{.peak = 1.0, .warmup_steps = 3, .steps = 3, .decay = Decay::cosine};
  CHECK(learning_rate(options, 3) == doctest::Approx(1.0));
}

TEST_CASE("the loss scale halves at an overflow and doubles after enough good steps") {
  LossScale scale{.scale = 1024, .dynamic = true, .growth_interval = 3};
  scale.update(false);
  scale.update(false);
  scale.update(true);
  CHECK(scale.scale == 512);
  for (int i = 0; i < 3; ++i) scale.update(false);
  CHECK(scale.scale == 1024);
  LossScale fixed{.scale = 1};
  fixed.update(true);
  CHECK(fixed.scale == 1);
}

// Which ranks are named stragglers, and which are not.
#include "actors/watch/stragglers.hpp"

#include "actors/predict/predicted_job.hpp"
#include "tests/actors/simulated_job.hpp"
#include "tests/doubles/virtual_time.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::actors;

namespace {

struct Watched {
  std::vector<int> named;  ///< ranks, each time one is named
  std::vector<Straggler> last;
  double step_seconds = 0;  ///< time of the last step
};

/// A job in virtual time whose ranks' compute times are watched.
Watched watched(const runtime::GridShape& grid, int steps, const Disturbances& disturbances,
                Policy policy = Policy::message_driven) {
  const runtime::MachineProfile profile = tests::instant_machine();
  TrainerOptions options = tests::small_run(grid);
  options.batch_size = 4 * grid.g_data;
  options.microbatch_size = 1;
  options.policy = policy;
  const models::GptOptions gpt = tests::small_gpt(2);
  const tests::RandomTokens tokens(gpt.sequence_length, gpt.vocab_size);
  const tests::CostsOf rate([](const runtime::WorkCost& cost) { return 1e3 * cost.flops; });
  const models::Architecture architecture = make_gpt(gpt);
  PredictedJob job(architecture, tokens, options, profile, {.costs = &rate},
                   {.steps = steps, .disturbances = disturbances});
  Stragglers stragglers(grid, 4);
  Watched result;
  job.when_stepped([&](const StepResult& step) {
    for (const Straggler& straggler : stragglers.step(step.compute_seconds).begin)
      result.named.push_back(straggler.rank);
  });
  result.step_seconds = job.run().step_seconds;
  result.last = stragglers.now();
  return result;
}

}  // namespace

TEST_CASE("a rank is named after twenty slow steps in a row, and until it is as fast as the others again") {
  Stragglers stragglers({2, 3}, 4);
  // Stage 0 is ranks 0 to 2, stage 1 ranks 3 to 5: rank 4 is slow, and stage 0 slower than both.
  const std::vector<double> usual{10, 10, 10, 4, 4, 4}, slow{10, 10, 10, 4, 6, 4};
  for (int step = 1; step < Stragglers::steps; ++step) CHECK(stragglers.step(slow).begin.empty());
  CHECK(stragglers.step(usual).begin.empty());
  for (int step = 1; step < Stragglers::steps; ++step) CHECK(stragglers.step(slow).begin.empty());
  CHECK(stragglers.now().empty());
  const auto change = stragglers.step(slow);
  REQUIRE(change.begin.size() == 1);
  CHECK(change.begin[0].rank == 4);
  CHECK(change.begin[0].times == doctest::Approx(1.5));
  // It is not the slowest of its row: it costs the delay of the last microbatch, 2 s by 4 microbatches.
  CHECK(change.begin[0].seconds_per_step == doctest::Approx(0.5));
  CHECK(stragglers.step(slow).begin.empty());
  CHECK(stragglers.now().size() == 1);
  for (int step = 1; step < Stragglers::steps_to_end; ++step) CHECK(stragglers.step(usual).end.empty());
  CHECK(stragglers.now().size() == 1);
  CHECK(stragglers.step(usual).end == std::vector<int>{4});
  CHECK(stragglers.now().empty());
  const runtime::Grid grid({2, 3}, 6);
  CHECK(describe(change.begin[0], grid) ==
        "straggler: rank 4 (stage 1, row 1) computes 1.50 times as long as its stage's median row; cost 0.5 s per "
        "step");
}

TEST_CASE("the cost of a straggler is the time that other rows wait for it") {
  // A single one costs all of its delay; one of two equally slow ones nothing: steps would be as long without it.
  for (const int both : {0, 1}) {
    Stragglers stragglers({1, 5}, 3);
    std::vector<double> seconds{2, 2, 5, 2, both == 1 ? 5.0 : 2.0};
    Stragglers::Change change;
    for (int step = 0; step < Stragglers::steps; ++step) change = stragglers.step(seconds);
    REQUIRE(change.begin.size() == std::size_t(1 + both));
    CHECK(change.begin[0].seconds_per_step == doctest::Approx(both == 1 ? 0 : 3));
  }
}

TEST_CASE("a straggler next to a slower stage costs less with more passes per step") {
  // Rank 4 takes 2 s more per step, and the next stage waits for one pass of these.
  for (const int passes : {4, 8, 16}) {
    Stragglers stragglers({2, 3}, passes);
    Stragglers::Change change;
    for (int step = 0; step < Stragglers::steps; ++step) change = stragglers.step({10, 10, 10, 4, 6, 4});
    REQUIRE(change.begin.size() == 1);
    CHECK(change.begin[0].seconds_per_step == doctest::Approx(2.0 / passes));
  }
}

TEST_CASE("the slower of two rows is named, and with one row none is") {
  Stragglers two({1, 2}, 1);
  Stragglers::Change change;
  for (int step = 0; step < Stragglers::steps; ++step) change = two.step({1.25, 1});
  REQUIRE(change.begin.size() == 1);
  CHECK(change.begin[0].rank == 0);
  Stragglers one({3, 1}, 1);
  for (int step = 0; step < 2 * Stragglers::steps; ++step) CHECK(one.step({}).begin.empty());
}

TEST_CASE("noise makes no rank a straggler") {
  // Ranks differ permanently by up to 8 %, steps by a tenth and some by much more.
  for (const std::uint64_t seed : test::seeds(tests::effort(4000, 20000, 800))) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const auto draw = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
    const runtime::GridShape grid{draw(1, 4), draw(2, 6)};
    std::uniform_real_distribution<double> place(0.96, 1.04), chance(0, 1);
    std::normal_distribution<double> jitter(0, 0.1);
    std::vector<double> own;
    for (int r = 0; r < grid.ranks(); ++r) own.push_back(place(random));
    Stragglers stragglers(grid, 4);
    for (int step = 0; step < 100; ++step) {
      std::vector<double> seconds;
      for (const double each : own)
        seconds.push_back(each * std::exp(jitter(random)) * (chance(random) < 0.02 ? 3 : 1));
      const auto change = stragglers.step(seconds);
      REQUIRE(change.begin.empty());
      REQUIRE(stragglers.now().empty());
    }
  }
}

TEST_CASE("in a job the slow rank is named, with its cost, under every schedule") {
  constexpr int steps = Stragglers::steps + 2;
  const runtime::GridShape grid{2, 3};
  for (const Policy policy : {Policy::message_driven, Policy::one_f_one_b, Policy::zero_bubble}) {
    const double usual = watched(grid, steps, {}, policy).step_seconds;
    for (const int rank : {0, 4, 5}) {
      INFO("policy ", to_string(policy), ", rank ", rank);
      std::vector<double> slow(6, 1.0);
      slow[std::size_t(rank)] = 1.6;
      const Watched job = watched(grid, steps, {.seed = 5, .jitter = 0.1, .slow_ranks = slow}, policy);
      CHECK(job.named == std::vector<int>{rank});
      REQUIRE(job.last.size() == 1);
      CHECK(job.last[0].times == doctest::Approx(1.6).epsilon(0.05));
      const Watched quiet = watched(grid, steps, {.slow_ranks = slow}, policy);
      CHECK(quiet.last.at(0).seconds_per_step == doctest::Approx(quiet.step_seconds - usual).epsilon(0.3));
    }
  }
}

TEST_CASE("in a job with jitter no rank is named") {
  for (const std::uint64_t seed : test::seeds(tests::effort(24, 1000, 4))) {
    CAPTURE(seed);
    const runtime::GridShape grid{static_cast<int>(1 + seed % 3), static_cast<int>(2 + seed % 2)};
    CHECK(watched(grid, 2 * Stragglers::steps, {.seed = seed, .jitter = 0.05 * static_cast<double>(seed % 11)})
              .named.empty());
  }
}

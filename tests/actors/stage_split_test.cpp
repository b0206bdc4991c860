// Splits of layers into stages, compared with all possible splits; and recommendations for slow ranks or layers,
// compared with jobs in virtual time that follow them.
#include "actors/schedule/stage_split.hpp"

#include "actors/predict/predicted_job.hpp"
#include "actors/rank/rank_plan.hpp"
#include "tests/actors/simulated_job.hpp"
#include "tests/doubles/virtual_time.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::actors;
using models::LayerRange;

namespace {

std::vector<double> stage_seconds(const std::vector<double>& seconds, const std::vector<double>& slowness,
                                  const std::vector<LayerRange>& stages) {
  std::vector<double> sums(stages.size());
  for (std::size_t s = 0; s < stages.size(); ++s)
    for (std::size_t l = stages[s].begin; l < stages[s].end; ++l) sums[s] += slowness[s] * seconds[l];
  return sums;
}

double squares(const std::vector<double>& all) {
  double sum = 0;
  for (const double each : all) sum += each * each;
  return sum;
}

struct Measured {
  double step_seconds = 0;
  std::optional<SplitAdvice> advice;
};

Measured measured(const models::GptOptions& gpt, const TrainerOptions& options, const Disturbances& disturbances) {
  const tests::RandomTokens tokens(gpt.sequence_length, gpt.vocab_size);
  const tests::CostsOf rate([](const runtime::WorkCost& cost) { return 1e3 * cost.flops; });
  const runtime::MachineProfile profile = tests::instant_machine();
  const models::Architecture architecture = make_gpt(gpt);
  PredictedJob job(architecture, tokens, options, profile, {.costs = &rate},
                   {.steps = 1 + std::max(options.rebalance_steps, 1), .disturbances = disturbances});
  Measured measured;
  job.when_stepped([&](const StepResult& result) {
    if (result.split) measured.advice = result.split;
  });
  measured.step_seconds = job.run().step_seconds;
  return measured;
}

}  // namespace

TEST_CASE("no split of layers has a faster slowest stage, or the same one and a more even distribution") {
  for (const std::uint64_t seed : test::seeds(400)) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const auto draw = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
    const int layers = draw(1, 9), stages = draw(1, layers);
    std::vector<double> seconds, slowness;
    for (int l = 0; l < layers; ++l) seconds.push_back(draw(0, 3) == 0 ? 1.0 : draw(1, 100) * 0.1);
    for (int s = 0; s < stages; ++s) slowness.push_back(draw(0, 1) == 0 ? 1.0 : draw(5, 30) * 0.1);
    double slowest = std::numeric_limits<double>::infinity(), max_even = slowest;
    std::vector<LayerRange> ranges;
    const std::function<void(std::size_t)> split = [&](std::size_t begin) {
      const auto left = std::size_t(stages) - ranges.size();
      for (std::size_t end = begin + 1; left > 0 && end + left - 1 <= std::size_t(layers); ++end) {
        ranges.push_back({begin, end});
        split(end);
        ranges.pop_back();
      }
      if (left > 0 || begin < std::size_t(layers)) return;
      const auto sums = stage_seconds(seconds, slowness, ranges);
      const double value = *std::max_element(sums.begin(), sums.end());
      if (value > slowest * (1 + 1e-9)) return;
      if (value < slowest * (1 - 1e-9)) max_even = std::numeric_limits<double>::infinity();
      slowest = std::min(slowest, value);
      max_even = std::min(max_even, squares(sums));
    };
    split(0);
    const auto best = fastest_split(seconds, slowness);
    REQUIRE(best.size() == std::size_t(stages));
    std::size_t begin = 0;
    for (const LayerRange& range : best) {
      CHECK(range.begin == begin);
      CHECK(range.end > range.begin);
      begin = range.end;
    }
    CHECK(begin == std::size_t(layers));
    const auto sums = stage_seconds(seconds, slowness, best);
    CHECK(*std::max_element(sums.begin(), sums.end()) == doctest::Approx(slowest));
    CHECK(squares(sums) == doctest::Approx(max_even));
  }
}

TEST_CASE("layers of the same kind measure the relative speed of stages") {
  // A table, blocks and a head; the third stage has half the speed, and of the last stage only its block measures it.
  const std::vector<int> kinds{0, 1, 1, 1, 1, 1, 1, 2};
  const std::vector<LayerRange> stages{{0, 3}, {3, 5}, {5, 6}, {6, 8}};
  const std::vector<double> seconds{2, 1, 1, 1, 1, 2, 1.5, 6};
  const auto slowness = slowness_of_stages(seconds, kinds, stages, {.stages = 4});
  REQUIRE(slowness.size() == 4);
  CHECK(slowness[1] == doctest::Approx(slowness[0]));
  CHECK(slowness[2] == doctest::Approx(2 * slowness[0]));
  CHECK(slowness[3] == doctest::Approx(1.5 * slowness[0]));
  // Stages that share no kind of layer cannot be compared.
  for (const double each : slowness_of_stages({3, 1}, {0, 1}, {{0, 1}, {1, 2}}, {.stages = 2}))
    CHECK(each == doctest::Approx(1));
}

TEST_CASE("a row takes the time of its slowest stage and a microbatch of the others") {
  CHECK(row_seconds({4, 8, 2}, 2) == 11);
  CHECK(row_seconds({4}, 7) == 4);
}

TEST_CASE("an even split is kept, and a better one is predicted with its real step time") {
  models::GptOptions gpt = tests::small_gpt(10);
  gpt.vocab_size = 300;
  TrainerOptions options = tests::small_run({.g_inter = 3, .g_data = 1});
  options.batch_size = 8;
  options.microbatch_size = 1;
  options.rebalance_steps = 2;
  // Includes the layers before and after the blocks.
  const auto layers = static_cast<int>(make_gpt(gpt).layers.size());
  const auto check = [&](const Disturbances& disturbances, std::vector<int> first) {
    options.layers_per_stage = std::move(first);
    const Measured before = measured(gpt, options, disturbances);
    REQUIRE(before.advice);
    CHECK(before.advice->helps());
    TrainerOptions then = options;
    then.layers_per_stage = before.advice->layers_then;
    const Measured after = measured(gpt, then, disturbances);
    REQUIRE(after.advice);
    CHECK(after.advice->layers_now == before.advice->layers_then);
    CHECK_FALSE(after.advice->helps());
    CHECK(after.step_seconds < before.step_seconds);
    const double gain = before.advice->row_seconds_now - before.advice->row_seconds_then;
    INFO("before.step_seconds ", before.step_seconds, ", after.step_seconds ", after.step_seconds);
    CHECK((before.step_seconds - after.step_seconds) / gain == doctest::Approx(1).epsilon(0.25));
    for (std::size_t s = 0; s < after.advice->measured.size(); ++s) {
      CHECK(after.advice->measured[s].all() == doctest::Approx(before.advice->seconds_then[s]).epsilon(0.02));
      CHECK(after.advice->measured[s].forward > 0);
      CHECK(after.advice->measured[s].weights > 0);
    }
    return before.advice->layers_then;
  };
  SUBCASE("a bad split") {
    const auto even = check({}, {1, 1, layers - 2});
    CHECK(even[0] > 1);
  }
  SUBCASE("a bad split whose weight gradients wait") {
    options.policy = Policy::zero_bubble;
    check({}, {1, 1, layers - 2});
  }
  SUBCASE("a bad split of several chunks, and a slow rank") {
    options.chunks_per_rank = 2;
    for (const Policy policy : {Policy::message_driven, Policy::zero_bubble}) {
      options.policy = policy;
      check({}, {1, 1, 1, 1, 1, layers - 5});
      const auto better = check({.slow_ranks = {1, 2, 1}}, {});
      CHECK(better[1] + better[4] < better[0] + better[3]);
    }
  }
  SUBCASE("a slow rank") {
    const auto usual = slice_layers(make_gpt(gpt), {.stages = 3});
    const auto better = check({.slow_ranks = {1, 2, 1}}, {});
    CHECK(better[1] < static_cast<int>(usual[1].end - usual[1].begin));
  }
}

TEST_CASE("layers are timed on request, and once") {
  const models::GptOptions gpt = tests::small_gpt(6);
  TrainerOptions options = tests::small_run({.g_inter = 2, .g_data = 2});
  CHECK_FALSE(measured(gpt, options, {}).advice);
  options.rebalance_steps = 5;
  options.steps = 8;
  auto result = tests::run_simulated(gpt, options, 3);
  for (const StepResult& step : result.steps) CHECK(step.split.has_value() == (step.step == 6));
  options.steps = 4;  // then it has a result
  result = tests::run_simulated(gpt, options, 3);
  for (const StepResult& step : result.steps) CHECK(step.split.has_value() == (step.step == 4));
  options.grid = {.g_inter = 1, .g_data = 2};
  result = tests::run_simulated(gpt, options, 3);
  for (const StepResult& step : result.steps) CHECK_FALSE(step.split);
}

TEST_CASE("stages have the layers of --layers-per-stage, or the reason for refusal is printed") {
  const models::Architecture architecture = make_gpt(tests::small_gpt(4));
  const auto layers = static_cast<int>(architecture.layers.size());
  const auto stages = slice_layers(architecture, {.stages = 3}, {1, layers - 3, 2});
  CHECK(stages[1].begin == 1);
  CHECK(stages[1].end == std::size_t(layers) - 2);
  CHECK(stages[2].end == std::size_t(layers));
  CHECK_THROWS_WITH_AS((void)slice_layers(architecture, {.stages = 2}, {1, 2, 3}),
                       doctest::Contains("`layers_per_stage` 1,2,3 has 3 numbers, but `g_inter` is 2"), Error);
  CHECK_THROWS_WITH_AS((void)slice_layers(architecture, {.stages = 2}, {1, layers}), doctest::Contains("add up to"),
                       Error);
  CHECK_THROWS_WITH_AS((void)slice_layers(architecture, {.stages = 2}, {0, layers}),
                       doctest::Contains("has a stage without layers"), Error);
}

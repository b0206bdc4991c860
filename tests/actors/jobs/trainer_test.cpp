#include "tests/actors/same_bits.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::tests;

TEST_CASE("stages, schedules, the order of messages and the location of states do not change any bit") {
  const auto draw_gpt = [](Draw& draw) -> DrawnModel {
    auto gpt = small_gpt(draw(1, 7));
    if (draw(0, 2) == 0) {  // units of several buckets on each of four ranks
      gpt.hidden = 32;
      gpt.vocab_size = 129;
    }
    gpt.precision = draw_precision(draw);
    gpt.dropout = draw.of(0.0f, 0.1f);
    return {models::make_gpt(gpt), draw_tokens(gpt.vocab_size, draw), true};
  };
  check_any_placement(draw_gpt, 250, 2000, 24);
}

TEST_CASE("training lowers the loss of a repeated batch") {
  auto options = small_run();
  options.steps = 30;
  options.learning_rate = {.peak = 1e-2, .steps = 30};
  options.batch_size = 2;
  const auto result = run_simulated(small_gpt(2), options, 1, {}, options.batch_size);
  CHECK(result.steps.front().loss == doctest::Approx(std::log(37.0)).epsilon(0.05));
  CHECK(result.steps.back().loss < 0.5 * result.steps.front().loss);
}

TEST_CASE("the number of rows changes losses only by rounding, also with dropout, which draws the same numbers") {
  auto options = small_run();
  options.steps = 5;
  auto dropping = small_gpt();
  dropping.dropout = 0.2f;
  double without = 0;
  for (const auto& gpt : {small_gpt(), dropping}) {
    CAPTURE(gpt.dropout);
    options.grid = {1, 1};
    const auto reference = run_simulated(gpt, options, 1);
    CHECK(reference.steps[0].loss != std::exchange(without, reference.steps[0].loss));
    for (const int g_data : {2, 4, 8}) {
      options.grid = {1, g_data};
      const auto rows = run_simulated(gpt, options, 1);
      for (std::size_t s = 0; s < reference.steps.size(); ++s)
        CHECK(rows.steps[s].loss == doctest::Approx(reference.steps[s].loss).epsilon(1e-6));
    }
  }
}

TEST_CASE("a shorter last microbatch is weighted by its samples") {
  auto options = small_run();
  options.batch_size = 7;
  options.microbatch_size = 7;
  const auto whole = run_simulated(small_gpt(), options, 1);
  options.microbatch_size = 3;
  const auto cut = run_simulated(small_gpt(), options, 1);
  CHECK(cut.steps[1].loss == doctest::Approx(whole.steps[1].loss).epsilon(1e-6));
}

TEST_CASE("a stop request on any rank ends the job on all ranks after the same step") {
  for (const char* const sharding : {"ddp", "zero3", "paro-iig", "NGN"}) {
    for (const bool every_step_counts : {false, true}) {
      INFO("sharding ", std::string(sharding), ", every_step_counts ", every_step_counts);
      auto options = small_run({2, 2}, sharding);
      options.steps = 6;
      options.group_size = 2;
      if (every_step_counts) options.clip = 0;
      if (every_step_counts) options.tiers.optimizer = actors::TierKind::host;
      for (const int rank : {0, 3}) {
        const auto result = run_simulated(small_gpt(), options, 1, {{rank, 2}});
        CHECK(result.steps.size() < 6);
        CHECK(result.steps.size() >= 2);
        // The request of step 2 travels with step 3.
        if (options.sharding == collectives::Sharding() && !every_step_counts) CHECK(result.steps.size() == 3);
      }
    }
  }
}

TEST_CASE("an fp16 overflow at the smallest loss scale ends the run") {
  auto gpt = small_gpt();
  gpt.precision = {runtime::DType::f16, runtime::DType::f32};
  auto options = small_run();
  options.precision = gpt.precision;
  options.loss_scale = {.scale = 1, .dynamic = true};
  options.fault = overflow(0, 2);
  CHECK_THROWS_WITH_AS(run_simulated(gpt, options, 1), doctest::Contains("step 2: gradient norm is "), Error);
}

TEST_CASE("gradients that are not finite end a run without a loss scale") {
  for (const double clip : {1.0, 0.0}) {  // every step is committed at 0
    auto options = small_run({1, 2});
    options.clip = clip;
    options.fault = overflow(1, 2);
    CHECK_THROWS_WITH_AS(run_simulated(small_gpt(), options, 1), doctest::Contains("step 2: gradient norm is "),
                         Error);
  }
}

TEST_CASE("clipping bounds the step but not the reported norm") {
  auto options = small_run();
  options.clip = 0;
  const auto free = run_simulated(small_gpt(), options, 1);
  options.clip = 1e-3;
  const auto clipped = run_simulated(small_gpt(), options, 1);
  CHECK(free.steps[0].gradient_norm == clipped.steps[0].gradient_norm);
  CHECK(free.weights != clipped.weights);
}

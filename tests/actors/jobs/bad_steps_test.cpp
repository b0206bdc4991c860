#include "actors/rank/bad_steps.hpp"

#include "tests/actors/memory_checkpoints.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::tests;
using actors::BadStep;
using actors::BadStepOptions;
using actors::BadSteps;
using Action = BadStepOptions::Action;
using Fault = actors::TrainerOptions::Fault;
using Reason = BadStep::Reason;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double no_number = std::numeric_limits<double>::quiet_NaN();

/// Good steps of loss 4 up to step `last`.
BadSteps after_good_steps(const BadStepOptions& options, std::int64_t last) {
  BadSteps steps(options);
  for (std::int64_t step = 1; step <= last; ++step) REQUIRE(!steps.judge(step, 4.0, 1.0));
  return steps;
}

}  // namespace

TEST_CASE("a loss or gradient norm that is not finite makes a step bad, at any step") {
  for (const double value : {infinity, no_number}) {
    BadSteps steps({.action = Action::skip});
    const auto loss = steps.judge(1, value, value);
    REQUIRE(loss);
    CHECK(loss->reason == Reason::loss_not_finite);
    CHECK(loss->action == Action::skip);
    const auto norm = steps.judge(2, 4.0, value);
    REQUIRE(norm);
    CHECK(norm->reason == Reason::norm_not_finite);
    CHECK(norm->in_a_row == 2);
  }
}

TEST_CASE("a loss far above the median is a spike, once there are enough losses") {
  const BadStepOptions options{.action = Action::skip, .spike_factor = 2};
  BadSteps early = after_good_steps(options, BadSteps::fewest_losses - 1);
  CHECK(!early.judge(BadSteps::fewest_losses, 8.1, 1));
  BadSteps steps = after_good_steps(options, BadSteps::fewest_losses);
  CHECK(!steps.judge(17, 7.9, 1));
  const auto spike = steps.judge(18, 8.1, 1);
  REQUIRE(spike);
  CHECK(spike->reason == Reason::loss_spike);
  CHECK(spike->median == 4.0);
  CHECK(describe(*spike, options) == "loss 8.1 is above 2 times the recent median 4");
  // The spike itself is not among the recent losses.
  CHECK(steps.state().losses.numbers().back() == 7.9);
  BadSteps off = after_good_steps({.action = Action::skip}, 100);
  CHECK(!off.judge(101, 1e6, 1));
}

TEST_CASE("the median is over the losses of the last steps") {
  BadSteps steps = after_good_steps({.spike_factor = 2}, 100);
  for (std::int64_t step = 101; step < 101 + 40; ++step) CHECK(!steps.judge(step, 1.0, 1));
  CHECK(steps.judge(141, 2.1, 1));
}

TEST_CASE("more consecutive bad steps than the limit end the job, and a good step resets their number") {
  BadSteps steps({.action = Action::skip, .limit = 2});
  CHECK(steps.judge(1, no_number, 1)->action == Action::skip);
  CHECK(steps.judge(2, no_number, 1)->action == Action::skip);
  CHECK(!steps.judge(3, 4, 1));
  CHECK(steps.judge(4, no_number, 1)->action == Action::skip);
  CHECK(steps.judge(5, no_number, 1)->action == Action::skip);
  const auto last = steps.judge(6, no_number, 1);
  REQUIRE(last);
  CHECK(last->action == Action::stop);
  CHECK(describe_end(*last, steps.options()) ==
        "gradient norm is 1 at loss nan; bad steps in a row: 3, more than `bad_steps_limit` 2; lower "
        "`learning_rate`, or use `precision` fp32 or bf16");
}

TEST_CASE("repeated steps before a bad one do not reset the number of consecutive bad steps") {
  BadSteps steps({.action = Action::rollback, .limit = 1});
  CHECK(!steps.judge(1, 4, 1));
  CHECK(steps.judge(2, no_number, 1)->action == Action::rollback);
  CHECK(!steps.judge(1, 4, 1));
  CHECK(steps.judge(2, no_number, 1)->action == Action::stop);
  CHECK(!steps.judge(1, 4, 1));
  CHECK(!steps.judge(2, 4, 1));
  CHECK(steps.judge(3, no_number, 1)->action == Action::rollback);
}

TEST_CASE("a skipped bad step changes no state on any tier and rank, with and without clipping") {
  for (const bool half : {false, true}) {
    for (const int faulty : {0, 3}) {
      INFO("half ", half, ", faulty ", faulty);
      auto options = small_run();
      auto gpt = small_gpt();
      if (half) {
        options.precision = gpt.precision = {runtime::DType::bf16, runtime::DType::f32};
        options.tiers.optimizer = actors::TierKind::host;
        options.tiers.commit = actors::Commit::flip;
      }
      options.grid = {2, 2};
      options.clip = 0;
      options.bad_steps = {.action = Action::skip};
      options.steps = 2;
      const auto without = run_simulated(gpt, options, 1);
      options.steps = 3;
      options.fault = Fault{faulty, 3, Fault::Kind::nan};
      const auto skipped = run_simulated(gpt, options, 1);
      REQUIRE(skipped.steps[2].bad);
      CHECK(skipped.steps[2].bad->reason == Reason::norm_not_finite);
      CHECK(skipped.steps[2].skipped);
      CHECK(skipped.weights == without.weights);
      options.bad_steps.action = Action::stop;
      CHECK_THROWS_WITH_AS(run_simulated(gpt, options, 1), doctest::Contains("step 3: gradient norm is nan"),
                           Error);
    }
  }
}

TEST_CASE("all ranks detect a spike of one row's loss") {
  auto options = small_run({2, 2});
  options.steps = 20;
  options.bad_steps = {.action = Action::skip, .spike_factor = 3};
  options.fault = Fault{3, 18, Fault::Kind::spike};
  const auto result = run_simulated(small_gpt(), options, 1);
  for (const actors::StepResult& step : result.steps) CHECK(step.bad.has_value() == (step.step == 18));
  CHECK(result.steps[17].bad->reason == Reason::loss_spike);
  options.bad_steps.action = Action::stop;
  CHECK_THROWS_WITH_AS(run_simulated(small_gpt(), options, 1), doctest::Contains("or raise `spike_factor`"), Error);
}

TEST_CASE("an overflow of fp16 is not a bad step, unless the loss scale is at its minimum") {
  auto gpt = small_gpt();
  auto options = small_run();
  options.precision = gpt.precision = {runtime::DType::f16, runtime::DType::f32};
  options.bad_steps = {.action = Action::skip, .limit = 1};
  options.fault = overflow(0, 2);
  for (const double scale : {1024.0, 1.0}) {
    CAPTURE(scale);
    options.loss_scale = {.scale = scale, .dynamic = true};
    const auto result = run_simulated(gpt, options, 1);
    CHECK(result.steps[1].skipped);
    CHECK(result.steps[1].bad.has_value() == (scale == 1));
  }
}

TEST_CASE("a rollback gives the bits of a run that never had the samples of the bad step") {
  struct Case {
    runtime::GridShape grid;
    const char* sharding;
    runtime::DType dtype;
    actors::TierKind tier;
    actors::Commit commit;
  };
  using actors::Commit;
  using actors::TierKind;
  using runtime::DType;
  for (const auto& [grid, sharding, dtype, tier, commit] :
       {Case{{1, 1}, "ddp", DType::f32, TierKind::device, Commit::wait},
        Case{{2, 2}, "zero3", DType::bf16, TierKind::device, Commit::wait},
        Case{{2, 2}, "zero1", DType::bf16, TierKind::host, Commit::flip}}) {
    CAPTURE(sharding);
    auto options = small_run();
    auto gpt = small_gpt(2);
    options.grid = grid;
    options.sharding = collectives::parse_sharding(sharding);
    options.precision = gpt.precision = {dtype, DType::f32};
    options.tiers = {.optimizer = tier, .commit = commit};
    options.steps = 6;
    options.bad_steps.action = Action::rollback;
    options.check_every = 3;
    gpt.dropout = 0.1f;

    auto without = options;
    without.steps = 8;
    without.rollback = actors::Rollback{.left_out = {{32, 8}}};
    const auto expected = run_simulated(gpt, without, 1);

    auto faulty = options;
    faulty.fault = Fault{grid.ranks() - 1, 5, Fault::Kind::nan};
    const auto first = run_checkpointed(gpt, faulty, {.every = 4}, 2);
    REQUIRE(first.job.rollback);
    CHECK(first.job.rollback->newest_step == 4);
    CHECK(first.job.rollback->left_out == std::vector<models::SampleRange>{{32, 8}});
    CHECK(first.job.steps.size() == 5);
    REQUIRE(first.states.size() == 1);  // step 4, without the bad step

    auto again = options;
    again.rollback = first.job.rollback;
    const auto second = run_checkpointed(gpt, again, {.from = &first.states.at(4)}, 3);
    // Runs that resume from there also leave out the samples.
    again.rollback.reset();
    again.steps = 8;
    const auto third = run_checkpointed(gpt, again, {.from = &second.states.at(6)}, 4);
    REQUIRE(third.job.steps.size() == 2);
    CHECK(second.job.steps.front().loss == expected.steps[4].loss);
    CHECK(third.job.steps.back().loss == expected.steps[7].loss);
    CHECK(third.job.weights == expected.weights);
  }
}

TEST_CASE("the limit on consecutive bad steps also applies across rollbacks") {
  auto options = small_run();
  options.steps = 4;
  options.bad_steps = {.action = Action::rollback, .limit = 1};
  options.fault = Fault{0, 3, Fault::Kind::nan};
  const auto first = run_checkpointed(small_gpt(2), options, {.every = 2}, 1);
  REQUIRE(first.job.rollback);
  options.rollback = first.job.rollback;
  CHECK_THROWS_WITH_AS(run_checkpointed(small_gpt(2), options, {.from = &first.states.at(2)}, 1),
                       doctest::Contains("bad steps in a row: 2, more than `bad_steps_limit` 1"), Error);
}

#include "actors/watch/reporter.hpp"

#include "tests/temporary_folder.hpp"

#include <boost/json/parse.hpp>
#include <doctest/doctest.h>

#include <sstream>
#include <string>
#include <vector>

using namespace ranvier::actors;
using namespace std::chrono_literals;
using doctest::Approx;

namespace {

/// A reporter of steps of 1000 FLOP, by a clock that the test moves.
struct Run {
  explicit Run(double peak_flops)
      : reporter({.steps = 100, .tokens_per_step = 10, .flops_per_step = 1000, .grid = {1, 3}, .quiet = true},
                 ranvier::runtime::MemoryPlan(),
                 std::make_unique<ranvier::runtime::LogFile>("--metrics", (folder.path() / "metrics").string(),
                                                             ranvier::runtime::LogFile::Start::anew)) {
    reporter.start(now, peak_flops);
  }

  void step(ranvier::runtime::Duration takes) {
    now += takes;
    reporter.step({.step = ++steps}, now);
  }
  /// Of the metrics file.
  [[nodiscard]] std::vector<boost::json::value> lines() {
    reporter.finish();
    std::istringstream metrics(folder.read("metrics"));
    std::vector<boost::json::value> all;
    for (std::string line; std::getline(metrics, line);) all.push_back(boost::json::parse(line));
    return all;
  }
  /// The `mfu` of every step there.
  [[nodiscard]] std::vector<double> shares() {
    std::vector<double> all;
    for (const boost::json::value& line : lines()) {
      if (const auto* mfu = line.as_object().if_contains("mfu")) all.push_back(mfu->to_number<double>());
    }
    return all;
  }

  ranvier::tests::TemporaryFolder folder;
  ranvier::runtime::Duration now = 5s;
  std::int64_t steps = 0;
  Reporter reporter;
};

}  // namespace

TEST_CASE("a ceiling that no step beats stays as it was measured") {
  FlopsCeiling ceiling(200);
  CHECK(ceiling.share(1, 50) == Approx(0.25));
  CHECK(ceiling.share(2, 200) == 1);
  CHECK(ceiling.value() == 200);
  CHECK(!ceiling.raised());
  CHECK(describe_raises(ceiling).empty());
}

TEST_CASE("a step that beats the ceiling raises it to its own rate, and later steps are a share of that") {
  FlopsCeiling ceiling(200);
  CHECK(ceiling.share(7, 300) == 1);
  REQUIRE(ceiling.raised());
  CHECK(ceiling.raised()->step == 7);
  CHECK(ceiling.raised()->from == 200);
  CHECK(ceiling.raised()->to == 300);
  CHECK(ceiling.share(8, 150) == Approx(0.5));
  CHECK(!ceiling.raised());
  CHECK(ceiling.share(9, 400) == 1);
  CHECK(ceiling.measured() == 200);
  CHECK(ceiling.value() == 400);
  CHECK(describe_raises(ceiling) ==
        "MFU: 100% was 200FLOP/s as measured before training; 2 steps from 7 to 9 were faster and raised it to "
        "400FLOP/s, 200% of that");
}

TEST_CASE("a ceiling that is not known gives no shares, and neither does a rate that is no number") {
  FlopsCeiling unknown;
  CHECK(unknown.share(1, 300) == 0);
  CHECK(unknown.value() == 0);
  CHECK(!unknown.raised());
  FlopsCeiling ceiling(200);
  CHECK(ceiling.share(1, 1.0 / 0.0) == 0);
  CHECK(ceiling.value() == 200);
}

TEST_CASE("no step of the metrics file uses more than all that the devices compute") {
  Run run(4000);  // which a step of 250 ms reaches
  for (const auto takes : {500ms, 250ms, 200ms, 400ms, 100ms, 200ms}) run.step(takes);
  const std::vector<double> shares = run.shares(), expected{0.5, 1, 1, 0.5, 1, 0.5};
  REQUIRE(shares.size() == expected.size());
  for (std::size_t i = 0; i < shares.size(); ++i) CHECK(shares[i] == Approx(expected[i]));
  CHECK(describe_raises(run.reporter.ceiling()) ==
        "MFU: 100% was 4kFLOP/s as measured before training; 2 steps from 3 to 5 were faster and raised it to "
        "10kFLOP/s, 250% of that");
}

TEST_CASE("a step's time is that between results, however late the reporter hears of them") {
  Run run(4000);
  const ranvier::runtime::Duration begin = run.now;
  // As a slow terminal has it: three results at once.
  for (int step = 1; step <= 3; ++step) run.reporter.step({.step = step}, begin + step * 500ms);
  CHECK(run.shares() == std::vector<double>(3, 0.5));
  CHECK(run.reporter.median_step_seconds() == Approx(0.5));
}

TEST_CASE("evaluations and samples are no part of the step that follows") {
  Run run(4000);
  run.step(500ms);
  run.now += 10s;
  run.reporter.evaluation({.step = 1, .loss = 2.0}, run.now);
  run.step(500ms);
  run.now += 10s;
  run.reporter.sample(2, "text", run.now);
  run.step(500ms);
  CHECK(run.shares() == std::vector<double>(3, 0.5));
}

TEST_CASE("what follows a step is in its line, and in one of its own where another run made the step") {
  Run run(4000);
  run.reporter.evaluation({.step = 2, .loss = 2.0, .samples = 8}, run.now);
  run.reporter.sample(2, "text", run.now);
  run.reporter.step({.step = 3, .evaluation_follows = true, .sample_follows = true}, run.now += 500ms);
  run.reporter.evaluation({.step = 3, .loss = 2.0, .samples = 8, .losses = 8, .hits = 0.75}, run.now);
  run.reporter.sample(3, "text", run.now);
  run.reporter.finish();
  const auto lines = run.lines();
  REQUIRE(lines.size() == 3);
  CHECK(lines[0] == boost::json::parse(R"({"step": 2, "validation_loss": 2, "validation_perplexity":
    7.38905609893065, "validation_samples": 8})"));
  CHECK(lines[1] == boost::json::parse(R"({"step": 2, "sample": "text"})"));
  CHECK(lines[2].at("step") == 3);
  CHECK(lines[2].at("mfu").is_number());
  CHECK(lines[2].at("validation_loss") == 2);
  CHECK(lines[2].at("validation_accuracy") == 0.75);
  CHECK(lines[2].at("sample") == "text");
}

TEST_CASE("bad steps and damage have lines of their own, and a step that is done again has none before") {
  using ranvier::collectives::Range;
  using Action = BadStepOptions::Action;
  Run run(4000);
  const BadStep bad{.step = 1, .reason = BadStep::Reason::norm_not_finite, .loss = 3, .action = Action::skip};
  run.now += 500ms;
  run.reporter.step({.step = 1, .skipped = true, .bad = bad}, run.now);
  BadStep again = bad;
  again.step = 2;
  again.gradient_norm = 1.0 / 0.0;
  again.in_a_row = 2;
  again.action = Action::rollback;
  run.reporter.step({.step = 2, .skipped = true, .bad = again}, run.now);
  run.reporter.checked({.step = 3}, std::nullopt, run.now);
  run.reporter.checked({.step = 4, .seconds = 1, .damage = {{"h.0", UnitArray::m, Range{8, 4}, {2}, {0, 1}}}},
                       Action::stop, run.now);
  run.reporter.finish();
  CHECK(run.reporter.steps() == 1);
  CHECK(run.reporter.checks() == "copies of states were compared 2 times, in 0.500 s each");
  const auto lines = run.lines();
  REQUIRE(lines.size() == 4);
  CHECK(lines[0] == boost::json::parse(R"({"bad_step": 1, "reason": "gradient norm", "action": "skip", "loss": 3,
    "grad_norm": 0, "in_a_row": 1})"));
  CHECK(lines[1].at("step") == 1);
  CHECK(lines[1].at("skipped") == true);
  CHECK(lines[2] ==
        boost::json::parse(R"({"bad_step": 2, "reason": "gradient norm", "action": "rollback", "loss": 3,
    "grad_norm": null, "in_a_row": 2})"));
  CHECK(lines[3] == boost::json::parse(R"({"damage": 4, "unit": "h.0", "state": "m", "begin": 8, "end": 12,
    "ranks": [2], "others": [0, 1], "action": "stop"})"));
}

TEST_CASE("steps that a slow rank holds up say so in the metrics, and others do not") {
  Run run(200);
  const auto step = [&](double slow) {
    run.now += 1s;
    run.reporter.step({.step = ++run.steps, .compute_seconds = {1, slow, 1}}, run.now);
  };
  for (int i = 0; i < Stragglers::steps + 2; ++i) step(1.5);
  for (int i = 0; i < Stragglers::steps_to_end; ++i) step(1);
  std::size_t steps = 0, named = 0;
  for (const boost::json::value& line : run.lines()) {
    ++steps;
    const auto* slow = line.as_object().if_contains("stragglers");
    CHECK((slow != nullptr) ==
          (steps >= Stragglers::steps && steps < Stragglers::steps + 2 + Stragglers::steps_to_end));
    if (slow == nullptr) continue;
    ++named;
    REQUIRE(slow->as_array().size() == 1);
    CHECK(slow->at(0).at("rank") == 1);
  }
  CHECK(named > 3);
  CHECK(steps == Stragglers::steps + 2 + Stragglers::steps_to_end);
}

TEST_CASE("a better split of layers has a line of its own in the metrics, with what a step would take") {
  Run run(200);
  run.now += 4s;
  run.reporter.step({.step = ++run.steps,
                     .split = SplitAdvice{.measured = {{.forward = 0.5, .backward = 0.5, .weights = 1}, {}},
                                          .layers_now = {3, 1},
                                          .layers_then = {2, 2},
                                          .seconds_then = {1.25, 0.75},
                                          .row_seconds_now = 3,
                                          .row_seconds_then = 2}},
                    run.now);
  const auto lines = run.lines();
  REQUIRE(lines.size() == 2);
  const auto& line = lines[0].as_object();
  CHECK(line.at("rebalance") == 1);
  CHECK(line.at("layers_per_stage") == boost::json::array{3, 1});
  CHECK(line.at("better_layers_per_stage") == boost::json::array{2, 2});
  CHECK(line.at("stage_seconds").at(0).at("weights").to_number<double>() == 1);
  CHECK(line.at("step_seconds").to_number<double>() == Approx(4));
  CHECK(line.at("better_step_seconds").to_number<double>() == Approx(3));
  CHECK(lines[1].at("step") == 1);
}

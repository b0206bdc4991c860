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

/// The `mfu` of every step of the metrics file.
std::vector<double> shares_in(const std::string& metrics) {
  std::vector<double> shares;
  std::istringstream lines(metrics);
  for (std::string line; std::getline(lines, line);)
    shares.push_back(boost::json::parse(line).at("mfu").to_number<double>());
  return shares;
}

/// A reporter of steps of 1000 FLOP, by a clock that the test moves.
struct Run {
  explicit Run(double peak_flops)
      : reporter({.steps = 100, .tokens_per_step = 10, .flops_per_step = 1000, .quiet = true},
                 ranvier::runtime::MemoryPlan(),
                 std::make_unique<ranvier::runtime::LogFile>("--metrics", (folder.path() / "metrics").string(),
                                                             ranvier::runtime::LogFile::Start::anew)) {
    reporter.start(now, peak_flops);
  }

  void step(ranvier::runtime::Duration takes) {
    now += takes;
    reporter.step({.step = ++steps}, now);
  }
  std::vector<double> shares() {
    reporter.finish();
    return shares_in(folder.read("metrics"));
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

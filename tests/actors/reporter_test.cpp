#include "actors/watch/reporter.hpp"

#include "tests/environment.hpp"
#include "tests/test.hpp"
#include "tests/words.hpp"

#include <boost/json/parse.hpp>

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

using namespace ranvier::actors;
using namespace ranvier::tests;
using namespace std::chrono_literals;
using doctest::Approx;

namespace {

/// A reporter of steps of 1000 FLOP, with a clock that the test controls.
struct Run {
  explicit Run(double measured, std::optional<double> data_sheet = {})
      : reporter(
            {.trainer = {.grid = {1, 3}, .batch_size = 3, .steps = 100},
             .tokens_per_step = 10,
             .flops_per_step = 1000,
             .quiet = true},
            ranvier::runtime::MemoryPlan(),
            std::make_unique<ranvier::runtime::RecordFile>("--metrics", (folder.path() / "metrics").string(),
                                                           ranvier::runtime::RecordFile::Start::from_scratch)) {
    reporter.start(now, {.measured = measured, .data_sheet = data_sheet});
  }

  void step(ranvier::runtime::Duration takes) {
    now += takes;
    reporter.step({.step = ++steps}, now);
  }
  /// Lines of the metrics file.
  [[nodiscard]] std::vector<boost::json::value> lines() {
    reporter.finish();
    std::vector<boost::json::value> all;
    for (const std::string& line : lines_of(folder.read("metrics"))) all.push_back(boost::json::parse(line));
    return all;
  }
  /// The `mfu` of every step in the file, or another fraction; -1: null.
  [[nodiscard]] std::vector<double> shares(const char* key = "mfu") {
    std::vector<double> all;
    for (const boost::json::value& line : lines()) {
      if (const auto* mfu = line.as_object().if_contains(key))
        all.push_back(mfu->is_null() ? -1 : mfu->to_number<double>());
    }
    return all;
  }

  TemporaryFolder folder;
  ranvier::runtime::Duration now = 5s;
  std::int64_t steps = 0;
  Reporter reporter;
};

/// Output of `say` on the standard output, which is a terminal or a pipe meanwhile. Less than a pipe's capacity.
std::string output_of(bool terminal, const std::function<void()>& say) {
  int ends[2];  // reading end, writing end
  if (terminal) {
    ends[0] = posix_openpt(O_RDWR | O_NOCTTY);
    REQUIRE(ends[0] >= 0);
    REQUIRE(grantpt(ends[0]) == 0);
    REQUIRE(unlockpt(ends[0]) == 0);
    ends[1] = open(ptsname(ends[0]), O_RDWR | O_NOCTTY);
    REQUIRE(ends[1] >= 0);
  } else {
    REQUIRE(pipe(ends) == 0);
  }
  std::fflush(stdout);
  const int before = dup(STDOUT_FILENO);
  REQUIRE(dup2(ends[1], STDOUT_FILENO) == STDOUT_FILENO);
  say();
  std::fflush(stdout);
  dup2(before, STDOUT_FILENO);
  close(before);
  std::string text;
  char part[4096];
  pollfd here{.fd = ends[0], .events = POLLIN, .revents = 0};
  while (poll(&here, 1, 0) == 1 && (here.revents & POLLIN) != 0) {
    const ssize_t bytes = read(ends[0], part, sizeof part);
    if (bytes <= 0) break;
    text.append(part, static_cast<std::size_t>(bytes));
  }
  close(ends[0]);
  close(ends[1]);
  return text;
}

/// Ten steps, the fifth of which is bad, an evaluation, a checkpoint and a warning about a failed one.
void ten_steps(const Reporter::Options& options) {
  Reporter reporter(options, ranvier::runtime::MemoryPlan(), nullptr);
  ranvier::runtime::Duration now = 0s;
  reporter.start(now, {.measured = 4000});
  for (std::int64_t step = 1; step <= 10; ++step) {
    StepResult result{.step = step, .loss = 3};
    if (step == 5) {
      result.skipped = true;
      result.bad = {.step = step, .reason = BadStep::Reason::loss_spike, .action = BadStepOptions::Action::skip};
    }
    reporter.step(result, now += 500ms);
  }
  reporter.evaluation({.step = 10, .loss = 2.0}, now);
  reporter.checkpoint({.step = 10, .bytes = 1 << 20, .seconds = 1});
  reporter.checkpoint({.step = 9, .failure = "the disk is full"});
  reporter.checkpoint({.step = 10, .last = true, .failure = "the disk is full"});
  reporter.finish();
}

const Reporter::Options ten{.trainer = {.steps = 10}, .tokens_per_step = 10, .flops_per_step = 1000};

/// Environment of a program that was started without mpirun.
struct OnItsOwn {
  Variable launcher{"OMPI_COMM_WORLD_SIZE", nullptr}, refused{"NO_COLOR", nullptr}, kind{"TERM", "xterm"};
};

std::vector<int> steps_with_lines(const std::string& text) {
  std::vector<int> steps;
  for (const std::string& line : lines_of(text))
    if (line.starts_with("step") && line.find("  loss ") != std::string::npos)
      steps.push_back(std::stoi(line.substr(4)));
  return steps;
}

}  // namespace

TEST_CASE("a terminal gets colors and a progress bar, and a pipe gets neither") {
  const OnItsOwn own;
  const std::string shown = output_of(true, [] { ten_steps(ten); });
  INFO(shown);
  check_has(shown, {"\033[31mstep  5/10  bad step", "\033[32mstep 10/10  validation loss",
                    "\033[33mstep 10/10  warning: checkpoint failed"});
  CHECK(shown.find("earlier checkpoints remain, training continues") < shown.rfind("earlier checkpoints remain"));
  CHECK(shown.rfind("training continues") < shown.rfind("earlier checkpoints remain"));
  check_has(shown, {"\033[0m", "[####################....................] 50%"});
  const std::string piped = output_of(false, [] { ten_steps(ten); });
  INFO(piped);
  check_lacks(piped, {"\033", "\r", "50%"});
  check_has(piped, {"validation loss"});
}

TEST_CASE("with NO_COLOR there are no colors, but the progress bar stays") {
  const OnItsOwn own;
  for (const auto& [name, value] : {std::pair{"NO_COLOR", "1"}, {"TERM", "dumb"}}) {
    const Variable refused(name, value);
    const std::string shown = output_of(true, [] { ten_steps(ten); });
    INFO(shown);
    check_lacks(shown, {"\033[3", "\033[0m"});
    check_has(shown, {"] 50%"});
  }
  const Variable empty("NO_COLOR", "");  // has no meaning
  check_has(output_of(true, [] { ten_steps(ten); }), {"\033[32m"});
}

TEST_CASE("under mpirun the launcher's output decides, not the terminal that it gives its ranks") {
  const OnItsOwn own;
  const Variable launcher("OMPI_COMM_WORLD_SIZE", "2");
  // This test's parent may have a terminal: then colors are correct.
  const std::string parent = "/proc/" + std::to_string(getppid()) + "/fd/1";
  char target[256] = "";
  if (readlink(parent.c_str(), target, sizeof target - 1) < 0 || std::string_view(target).starts_with("/dev/"))
    return;
  check_lacks(output_of(true, [] { ten_steps(ten); }), {"\033"});
}

TEST_CASE("step lines are as rare as requested, except the first, the last and bad steps") {
  const OnItsOwn own;
  Reporter::Options options = ten;
  const auto steps = [&](std::int64_t every) {
    options.lines_every = every;
    return steps_with_lines(output_of(false, [&] { ten_steps(options); }));
  };
  CHECK(steps(1) == std::vector{1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  CHECK(steps(4) == std::vector{1, 4, 5, 8, 10});
  CHECK(steps(100) == std::vector{1, 5, 10});
}

TEST_CASE("without step lines warnings, evaluations and checkpoints are printed, on a terminal without a bar") {
  const OnItsOwn own;
  Reporter::Options options = ten;
  options.lines_every = 0;
  for (const bool terminal : {false, true}) {
    const std::string shown = output_of(terminal, [&] { ten_steps(options); });
    INFO(shown);
    CHECK(steps_with_lines(shown).empty());
    check_lacks(shown, {"%"});
    check_has(shown, {"bad step", "validation loss", "checkpoint: 1.0 MiB", "warning: checkpoint failed"});
  }
  options.quiet = true;
  CHECK(output_of(true, [&] { ten_steps(options); }).empty());
}

TEST_CASE("columns stay aligned for numbers of any size") {
  const OnItsOwn own;
  const std::string shown = output_of(false, [] {
    Reporter::Options options{
        .trainer = {.steps = 1000000, .loss_scale = {.dynamic = true}}, .tokens_per_step = 1, .flops_per_step = 1};
    Reporter reporter(options, ranvier::runtime::MemoryPlan(), nullptr);
    ranvier::runtime::Duration now = 0s;
    reporter.start(now, {});
    std::int64_t step = 0;
    for (const double value :
         {1e-7, 0.5, 9.99999, 12.3456, 99.99999, 123.456, 1e5, 12345678.9, 1e12, 1e38, 1 / 0.0}) {
      reporter.step({.step = ++step * 90000,
                     .loss = value,
                     .gradient_norm = value,
                     .loss_scale = std::min(value, 1e30),
                     .skips = step * step},
                    now += std::chrono::microseconds(37) * (std::int64_t{1} << (3 * step)));
    }
  });
  INFO(shown);
  const std::vector<std::string> lines = lines_of(shown);
  REQUIRE(lines.size() == 11);
  for (const std::string& line : lines) {
    for (const char* column :
         {"  loss ", "  norm ", "  lr ", "  scale ", "  skips ", " ms  ", " tok/s  ", "  mem "})
      CHECK(line.find(column) == lines[0].find(column));
  }
}

TEST_CASE("a count is printed with three digits and a unit") {
  for (const auto& [value, text] : {std::pair{0.0, "0"},
                                    {999.4, "999"},
                                    {999.6, "1k"},
                                    {999'400.0, "999k"},
                                    {999'600.0, "1M"},
                                    {999'999'999.0, "1G"},
                                    {3'260'000.0, "3.26M"},
                                    {1e15, "1P"},
                                    {1.234e20, "123E"}})
    CHECK(format_count(value) == text);
  CHECK(format_fitting(0.5861, 4, 7) == "0.5861");
  CHECK(format_fitting(123.4567, 4, 7) == "123.457");
  CHECK(format_fitting(99.99999, 4, 7) == "100.000");
  CHECK(format_fitting(1234567.8, 4, 7) == "1234568");
  CHECK(format_fitting(12345678.9, 4, 7) == "1e+07");
  CHECK(format_fitting(65536, 0, 8) == "65536");
  CHECK(format_fitting(0.0 / 0.0, 4, 7) == "nan");
}

TEST_CASE("a peak that no step exceeds stays as measured") {
  FlopsCeiling ceiling(200);
  CHECK(ceiling.share(1, 50) == Approx(0.25));
  CHECK(ceiling.share(2, 200) == 1);
  CHECK(ceiling.value() == 200);
  CHECK(!ceiling.raised_from());
  CHECK(ceiling.describe_raises().empty());
}

TEST_CASE("a step above the measured peak raises the peak to its rate, and later steps are relative to that") {
  FlopsCeiling ceiling(200);
  CHECK(ceiling.share(7, 300) == 1);
  CHECK(ceiling.raised_from() == 200);
  CHECK(ceiling.value() == 300);
  CHECK(ceiling.share(8, 150) == Approx(0.5));
  CHECK(!ceiling.raised_from());
  CHECK(ceiling.share(9, 400) == 1);
  CHECK(ceiling.value() == 400);
  CHECK(ceiling.describe_raises() ==
        "measured MFU: peak 200FLOP/s before training, raised to 400FLOP/s (200%) by 2 steps (7 to 9)");
}

TEST_CASE("an unknown peak gives no fractions, and neither does a rate that is not a number") {
  FlopsCeiling unknown;
  CHECK(unknown.share(1, 300) == 0);
  CHECK(unknown.value() == 0);
  CHECK(!unknown.raised_from());
  FlopsCeiling ceiling(200);
  CHECK(ceiling.share(1, 1.0 / 0.0) == 0);
  CHECK(ceiling.value() == 200);
}

TEST_CASE("no step of the metrics file has a fraction above 1") {
  Run run(4000);  // a step of 250 ms reaches this rate
  for (const auto takes : {500ms, 250ms, 200ms, 400ms, 100ms, 200ms}) run.step(takes);
  const std::vector<double> shares = run.shares(), expected{0.5, 1, 1, 0.5, 1, 0.5};
  REQUIRE(shares.size() == expected.size());
  for (std::size_t i = 0; i < shares.size(); ++i) CHECK(shares[i] == Approx(expected[i]));
  CHECK(run.shares("measured_mfu") == shares);
  CHECK(run.reporter.ceiling().describe_raises() ==
        "measured MFU: peak 4kFLOP/s before training, raised to 10kFLOP/s (250%) by 2 steps (3 to 5)");
}

TEST_CASE("a GPU's MFU is relative to its data sheet's rate, and a second fraction to the measured rate") {
  Run known(4000, 8000.0);
  for (const auto takes : {500ms, 200ms}) known.step(takes);
  CHECK(known.shares() == std::vector<double>{0.25, 0.625});
  CHECK(known.shares("measured_mfu") == std::vector<double>{0.5, 1});
  Run unknown_gpu(4000, 0.0);
  unknown_gpu.step(500ms);
  CHECK(unknown_gpu.shares() == std::vector<double>{-1});
  CHECK(unknown_gpu.shares("measured_mfu") == std::vector<double>{0.5});
  Run unmeasured(0, 8000.0);
  unmeasured.step(500ms);
  CHECK(unmeasured.shares() == std::vector<double>{0.25});
  CHECK(unmeasured.shares("measured_mfu") == std::vector<double>{-1});
}

TEST_CASE("a step's line has MFU, or the measured fraction with its name if MFU is unknown") {
  const auto line = [](const PeakRates& peak) {
    return output_of(false, [&] {
      Reporter reporter({.trainer = {.steps = 2}, .tokens_per_step = 10, .flops_per_step = 1000},
                        ranvier::runtime::MemoryPlan(), nullptr);
      reporter.start(0s, peak);
      reporter.step({.step = 1}, 500ms);
      reporter.step({.step = 2}, 600ms);
    });
  };
  const std::string raised = "(measured peak raised to 10kFLOP/s from 4kFLOP/s)";
  const std::string cpu = line({.measured = 4000});
  check_has(cpu, {"tok/s  MFU  50.0%  mem", raised});
  const std::string gpu = line({.measured = 4000, .data_sheet = 8000.0});
  check_has(gpu, {"tok/s  MFU  25.0%  mem"});
  check_lacks(gpu, {"measured peak"});
  const std::string unknown = line({.measured = 4000, .data_sheet = 0.0});
  check_has(unknown, {"tok/s  measured MFU  50.0%  mem", raised});
  check_has(line({}), {"tok/s  MFU      -  mem"});
}

TEST_CASE("a step's time is the time between results, regardless of when the reporter processes them") {
  Run run(4000);
  const ranvier::runtime::Duration begin = run.now;
  // Like a slow terminal: three results at once.
  for (int step = 1; step <= 3; ++step) run.reporter.step({.step = step}, begin + step * 500ms);
  CHECK(run.shares() == std::vector<double>(3, 0.5));
  CHECK(run.reporter.median_step_seconds() == Approx(0.5));
}

TEST_CASE("evaluations and samples do not count towards the next step's time") {
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

TEST_CASE("an event after a step is in the step's line, or in a separate line if another run made the step") {
  Run run(4000);
  run.reporter.evaluation({.step = 2, .loss = 2.0, .samples = 8}, run.now);
  run.reporter.sample(2, "text", run.now);
  run.reporter.step({.step = 3, .evaluation_follows = true, .sample_follows = true}, run.now += 500ms);
  run.reporter.evaluation({.step = 3, .loss = 2.0, .samples = 8, .losses = 8, .correct = 0.75}, run.now);
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

TEST_CASE("bad steps and mismatches have separate lines, and a step to be repeated has no step line") {
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
  run.reporter.checked({.step = 4, .seconds = 1, .damage = {{"h.0", StateKind::m, Range{8, 4}, {2}, {0, 1}}}},
                       Action::stop, run.now);
  run.reporter.finish();
  CHECK(run.reporter.steps() == 1);
  CHECK(run.reporter.checks() == "replica checks: 2, 0.500 s per check");
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

TEST_CASE("steps that a slow rank delays are marked in the metrics, and others are not") {
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

TEST_CASE("a better split of layers has a separate line in the metrics, with its predicted step time") {
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

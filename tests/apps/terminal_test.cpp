// What a whole run says to a terminal and to a pipe: how long its start is, which lines are left out, what is coloured.
#include "tests/apps/small_run.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

using namespace ranvier::tests;
using namespace std::chrono_literals;

namespace {

/// A command that gives the next one a terminal of its own, and passes on what it writes.
const std::vector<std::string> on_a_terminal{
    "python3", "-c", "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"};

struct Fixture : SmallText {
  /// What a run with an evaluation says, which succeeds.
  [[nodiscard]] std::string said(const std::vector<std::string>& through, const Flags& more,
                                 Environment environment = {}) const {
    Flags flags{"--eval-every", "4", "--validation-split", "0.1"};
    flags.insert(flags.end(), more.begin(), more.end());
    environment.emplace_back("TERM", "xterm");
    const Outcome outcome = Job(through, 2, small_run(text, flags), environment).wait(60s);
    INFO(outcome.output);
    REQUIRE(outcome.status == 0);
    return outcome.output;
  }
};

bool has(const std::string& text, const std::string& words) { return text.find(words) != std::string::npos; }

/// The numbers of steps that have a line with a loss.
std::vector<int> steps_with_lines(const std::string& output) {
  std::vector<int> steps;
  for (const std::string& line : lines_of(output)) {
    const auto at = line.find("step ");
    if (at != std::string::npos && has(line, "  norm ")) steps.push_back(std::stoi(line.substr(at + 5)));
  }
  return steps;
}

}  // namespace

TEST_CASE_FIXTURE(Fixture,
                  "whoever pipes a run gets no escape sequence, and the summary opens with what limited it") {
  const std::string output = said({}, {"--g-inter", "2"});
  CHECK(!has(output, "\033"));
  CHECK(steps_with_lines(output) == std::vector{1, 2, 3, 4});
  const auto limit = output.find("\nbottleneck: "), table = output.find("\nshare of the time per rank");
  REQUIRE(limit != std::string::npos);
  REQUIRE(table != std::string::npos);
  CHECK(limit < table);
  CHECK(output.rfind("\nstep ", table) < limit);  // nothing of the summary is before it
  const std::vector<std::string> lines = lines_of(output);
  const auto line = [&](const char* begin) {
    return std::find_if(lines.begin(), lines.end(), [&](const std::string& l) { return l.starts_with(begin); });
  };
  REQUIRE(line("given ") != lines.end());
  REQUIRE(line("step 1/4") != lines.end());
  CHECK(line("step 1/4") - line("given ") <= 24);
  CHECK(std::any_of(line("given "), line("given ") + 2, [](const auto& l) { return has(l, "--eval-every 4"); }));
}

TEST_CASE_FIXTURE(Fixture, "a terminal gets colours, but not where NO_COLOR is set") {
  const std::string coloured = said(on_a_terminal, {});
  CHECK(has(coloured, "\033[32mstep 4/4  validation loss"));
  CHECK(has(coloured, "] 50%"));
  const std::string plain = said(on_a_terminal, {}, {{"NO_COLOR", "1"}});
  CHECK(!has(plain, "\033[3"));
  CHECK(has(plain, "step 4/4  validation loss"));
  CHECK(has(plain, "] 50%"));
}

TEST_CASE_FIXTURE(Fixture,
                  "fewer lines of steps where they are not wanted, and none with the plan where a run is quiet") {
  CHECK(steps_with_lines(said({}, {"--log-every", "3"})) == std::vector{1, 3, 4});
  const std::string checkpoints = file("checkpoints");
  const std::string quiet = said({}, {"--quiet", "--checkpoint", checkpoints});
  CHECK(steps_with_lines(quiet).empty());
  CHECK(!has(quiet, "grid: "));
  for (const char* words : {"validation loss", "checkpoint: ", "bottleneck: ", "trained 4 steps"})
    CHECK(has(quiet, words));
}

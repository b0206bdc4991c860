// Output of a complete run to a terminal and to a pipe: length of the startup output, omitted lines, colors.
#include "tests/apps/small_run.hpp"

using namespace ranvier::tests;
using namespace std::chrono_literals;

namespace {

/// A command that gives the next one its own terminal, and forwards its output.
const std::vector<std::string> on_a_terminal{
    "python3", "-c", "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"};

struct Fixture : SmallText {
  /// Output of a successful run with an evaluation.
  [[nodiscard]] std::string said(const std::vector<std::string>& through, const Flags& more,
                                 Environment environment = {}) const {
    Flags flags = join({"--eval-every", "4", "--validation-split", "0.1"}, more);
    environment.emplace_back("TERM", "xterm");
    const Outcome outcome = require_status(0, Job(through, 2, small_run(text, flags), environment).wait(60s));
    return outcome.output;
  }
};

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
                  "a run in a pipe prints no escape sequence, and the summary starts with the bottleneck") {
  const std::string output = said({}, {"--g-inter", "2"});
  check_lacks(output, {"\033"});
  CHECK(steps_with_lines(output) == std::vector{1, 2, 3, 4});
  const auto limit = output.find("\nbottleneck: "), table = output.find("\nshare of the time per rank");
  REQUIRE(limit != std::string::npos);
  REQUIRE(table != std::string::npos);
  CHECK(limit < table);
  CHECK(output.rfind("\nstep ", table) < limit);  // nothing of the summary precedes it
  const std::vector<std::string> lines = lines_of(output);
  const auto line = [&](const char* begin) {
    return std::find_if(lines.begin(), lines.end(), [&](const std::string& l) { return l.starts_with(begin); });
  };
  REQUIRE(line("given ") != lines.end());
  REQUIRE(line("step 1/4") != lines.end());
  CHECK(line("step 1/4") - line("given ") <= 24);
  CHECK(std::any_of(line("given "), line("given ") + 2, [](const auto& l) { return has(l, "--eval-every 4"); }));
}

TEST_CASE_FIXTURE(Fixture, "a terminal gets colors, but not if NO_COLOR is set") {
  const std::string coloured = said(on_a_terminal, {});
  check_has(coloured, {"\033[32mstep 4/4  validation loss", "] 50%"});
  const std::string plain = said(on_a_terminal, {}, {{"NO_COLOR", "1"}});
  check_lacks(plain, {"\033[3"});
  check_has(plain, {"step 4/4  validation loss", "] 50%"});
}

TEST_CASE_FIXTURE(Fixture, "step lines are fewer on request, and a quiet run prints none and no plan") {
  CHECK(steps_with_lines(said({}, {"--log-every", "3"})) == std::vector{1, 3, 4});
  const std::string checkpoints = file("checkpoints");
  const std::string quiet = said({}, {"--quiet", "--checkpoint", checkpoints});
  CHECK(steps_with_lines(quiet).empty());
  check_lacks(quiet, {"grid: "});
  check_has(quiet, {"validation loss", "checkpoint: ", "bottleneck: ", "trained 4 steps"});
}

// Runs that choose their own flags (--plan auto), as jobs under mpirun.
#include "tests/apps/plan_profiles.hpp"
#include "tests/apps/small_run.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

using namespace ranvier;
using namespace ranvier::tests;
using namespace std::chrono_literals;

namespace {

constexpr auto limit = 120s;

bool mentions(const Outcome& outcome, const std::string& words) {
  return outcome.output.find(words) != std::string::npos;
}

runtime::MachineProfile machine() {
  runtime::MachineProfile profile = plan_profile(false);
  profile.device_memory = profile.host_memory;  // files have a separate one
  return profile;
}

struct PlannedRun : SmallText {
  std::string profile = folder.write("profile.json", to_json(machine())).string();
  std::string metrics = file("metrics.jsonl");

  /// Without the chosen flags.
  [[nodiscard]] Flags flags(const Flags& more) const {
    Flags all = small_run(text, more);
    const auto microbatch = std::find(all.begin(), all.end(), "--microbatch-size");
    all.erase(microbatch, microbatch + 2);
    return all;
  }
};

/// Losses in a file that several runs may have written.
std::vector<std::string> losses_of(const std::string& metrics) {
  std::vector<std::string> losses;
  for (const std::string& line : lines_of(read_file(metrics)))
    if (line.starts_with("{\"step\":")) losses.push_back(line.substr(0, line.find(",\"grad_norm\"")));
  return losses;
}

/// The flags of the output's line "equivalent flags".
Flags said_flags(const Outcome& outcome) {
  const std::string before = "equivalent flags: ";
  const auto begin = outcome.output.find(before);
  REQUIRE(begin != std::string::npos);
  std::istringstream words(
      outcome.output.substr(begin + before.size(), outcome.output.find('\n', begin) - begin - before.size()));
  Flags flags;
  for (std::string word; words >> word;) flags.push_back(word);
  return flags;
}

}  // namespace

TEST_CASE_FIXTURE(PlannedRun, "a run plans itself, its printed flags repeat it, and others resume it") {
  const Flags plan{"--plan", "auto", "--profile", profile};
  const std::string checkpoints = file("checkpoints");
  Flags first = flags({"--metrics", metrics, "--checkpoint", checkpoints, "--checkpoint-every", "4", "--lr-decay",
                       "constant", "--warmup-steps", "0"});
  first.insert(first.end(), plan.begin(), plan.end());
  const Outcome planned = run(2, first, limit);
  INFO(planned.output);
  REQUIRE(planned.status == 0);
  CHECK(mentions(planned, "plan: "));
  CHECK(mentions(planned, " per step, "));
  CHECK(mentions(planned, "predicted for test-cpu"));
  const auto losses = losses_of(metrics);
  CHECK(losses.size() == 4);

  Flags by_hand = flags({"--metrics", file("by-hand.jsonl"), "--lr-decay", "constant", "--warmup-steps", "0"});
  for (const std::string& word : said_flags(planned)) by_hand.push_back(word);
  const Outcome repeated = run(2, by_hand, limit);
  INFO(repeated.output);
  REQUIRE(repeated.status == 0);
  CHECK(losses_of(file("by-hand.jsonl")) == losses);

  // Another number of ranks plans again, and resumes the same training.
  Flags second = first;
  *(std::find(second.begin(), second.end(), "--steps") + 1) = "6";
  second.insert(second.end(), {"--resume", "auto"});
  const Outcome resumed = run(1, second, limit);
  INFO(resumed.output);
  CHECK(resumed.status == 0);
  CHECK(mentions(resumed, "plan: 1 × 1"));
  CHECK(mentions(resumed, "step 4 is done"));
  CHECK(losses_of(metrics).size() == 6);
}

TEST_CASE_FIXTURE(PlannedRun, "a run that cannot plan itself ends with one message that has a remedy") {
  const auto refused = [&](int status, const std::string& words, const Flags& more) {
    CAPTURE(words);
    Flags all = flags({});
    all.insert(all.end(), more.begin(), more.end());
    const Outcome outcome = run(2, all, limit);
    INFO(outcome.output);
    CHECK(outcome.status == status);
    const auto at = outcome.output.find(words);
    REQUIRE(at != std::string::npos);
    CHECK(outcome.output.find(words, at + 1) == std::string::npos);
  };
  refused(64, "mpirun -n 2 ranvier-bench profile", {"--plan", "auto"});
  refused(64, "--plan is invalid: best; use one of none, auto", {"--plan", "best"});
  const std::string empty = folder.write("empty.json", "{}").string();
  refused(64, "--profile " + empty, {"--plan", "auto", "--profile", empty});
  refused(71, "nothing fits 2 ranks", {"--plan", "auto", "--profile", profile, "--device-memory", "64KiB"});
  Flags with = flags({});
  with.insert(with.end(), {"--plan", "auto", "--profile", profile});
  const Outcome differ = Job({with, flags({})}).wait(limit);
  INFO(differ.output);
  CHECK(differ.status == 64);
  CHECK(mentions(differ, "options differ between ranks: only some have --plan auto"));
}

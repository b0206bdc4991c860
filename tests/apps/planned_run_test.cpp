// Runs that choose their own flags (--plan auto), as jobs under mpirun.
#include "tests/apps/plan_profiles.hpp"
#include "tests/apps/small_run.hpp"

using namespace ranvier;
using namespace ranvier::tests;
using namespace std::chrono_literals;

namespace {

constexpr auto limit = 120s;

struct PlannedRun : SmallText {
  std::string profile = folder.write("profile.json", to_json(job_profile())).string();

  /// Without the chosen flags.
  [[nodiscard]] Flags flags(const Flags& more) const {
    Flags all = small_run(text, more);
    const auto microbatch = std::find(all.begin(), all.end(), "--microbatch-size");
    all.erase(microbatch, microbatch + 2);
    return all;
  }
};

/// The flags of the output's line "equivalent flags".
Flags said_flags(const Outcome& outcome) {
  const std::string before = "equivalent flags: ";
  const auto begin = outcome.output.find(before);
  REQUIRE(begin != std::string::npos);
  return outcome.output.substr(begin + before.size(), outcome.output.find('\n', begin) - begin - before.size());
}

}  // namespace

TEST_CASE_FIXTURE(PlannedRun, "a run plans itself, its printed flags repeat it, and others resume it") {
  const Flags plan{"--plan", "auto", "--profile", profile};
  const std::string checkpoints = file("checkpoints");
  Flags first = join(flags({"--metrics", metrics, "--checkpoint", checkpoints, "--checkpoint-every", "4",
                            "--lr-decay", "constant", "--warmup-steps", "0"}),
                     plan);
  const Outcome planned = require_status(0, run(2, first, limit));
  check_has(planned.output, {"plan: ", " per step, ", "predicted for test-cpu"});
  const auto losses = metric(metrics, "loss");
  CHECK(losses.size() == 4);

  Flags by_hand = flags({"--metrics", file("by-hand.jsonl"), "--lr-decay", "constant", "--warmup-steps", "0"});
  for (const std::string& word : said_flags(planned)) by_hand.push_back(word);
  require_status(0, run(2, by_hand, limit));
  CHECK(metric(file("by-hand.jsonl"), "loss") == losses);

  // Another number of ranks plans again, and resumes the same training.
  Flags second = first;
  *(std::find(second.begin(), second.end(), "--steps") + 1) = "6";
  check_output(0, run(1, join(second, {"--resume", "auto"}), limit), {"plan: 1 × 1", "step 4 is done"});
  CHECK(metric(metrics, "loss").size() == 6);
}

TEST_CASE_FIXTURE(PlannedRun, "a run that cannot plan itself ends with one message that has a remedy") {
  const auto refused = [&](int status, const std::string& words, const Flags& more) {
    CAPTURE(words);
    const Outcome outcome = require_status(status, run(2, join(flags({}), more), limit));
    const auto at = outcome.output.find(words);
    REQUIRE(at != std::string::npos);
    CHECK(outcome.output.find(words, at + 1) == std::string::npos);
  };
  refused(64, "mpirun -n 2 ranvier-bench profile", {"--plan", "auto"});
  const std::string empty = folder.write("empty.json", "{}").string();
  refused(64, "--profile " + empty, {"--plan", "auto", "--profile", empty});
  refused(71, "nothing fits 2 ranks", {"--plan", "auto", "--profile", profile, "--device-memory", "64KiB"});
  const Outcome differ =
      require_status(64, Job({join(flags({}), {"--plan", "auto", "--profile", profile}), flags({})}).wait(limit));
  check_has(differ.output, {"options differ between ranks: only some have --plan auto"});
}

// Runs in which something does not come to its end: who is named, and what is left alone.
#include "tests/apps/small_run.hpp"

#include <doctest/doctest.h>

#include <csignal>
#include <thread>

using namespace ranvier::tests;
using namespace std::chrono_literals;

namespace {

bool mentions(const Outcome& outcome, const std::string& words) {
  return outcome.output.find(words) != std::string::npos;
}

}  // namespace

TEST_CASE_FIXTURE(SmallText, "a stream whose work does not end is named by its rank, of one, two and four") {
  for (const auto& [ranks, faulty] : {std::pair{1, 0}, {2, 1}, {4, 2}}) {
    Flags flags{"--steps", "100", "--timeout", "2"};
    if (ranks > 1) flags.insert(flags.end(), {"--g-inter", "2"});
    const Outcome outcome =
        run(ranks, small_run(text, flags), 40s, {{"RANVIER_FAULT", std::to_string(faulty) + ":3:stream"}});
    INFO(outcome.output);
    CHECK_FALSE(outcome.timed_out);
    CHECK(outcome.status != 0);
    CHECK(mentions(outcome, "rank " + std::to_string(faulty) + " (stage "));
    CHECK(mentions(outcome, "stands still: pipeline: the forward pass of microbatch 0"));
    CHECK(mentions(outcome, "stream 'compute', has not ended for"));
  }
}

TEST_CASE_FIXTURE(SmallText, "a request to a file that does not come back is named with file and offset") {
  const Outcome outcome = run(2,
                              small_run(text, {"--steps", "100", "--timeout", "2", "--g-data", "2",
                                               "--optimizer-tier", "nvme", "--nvme", file("")}),
                              40s, {{"RANVIER_FAULT", "1:3:file"}});
  INFO(outcome.output);
  CHECK_FALSE(outcome.timed_out);
  CHECK(outcome.status != 0);
  CHECK(mentions(outcome, "rank 1 (stage 0, row 1) stands still: tiers: a "));
  CHECK(mentions(outcome, " bytes at offset "));
  CHECK(mentions(outcome, " of " + file("")));
}

TEST_CASE_FIXTURE(SmallText, "SIGUSR2 has every rank say what it waits for, and a stopped rank may continue") {
  const std::string metrics = file("metrics.jsonl");
  Job job(2, small_run(text, {"--steps", "1000000", "--metrics", metrics, "--g-inter", "2", "--timeout", "30"}));
  REQUIRE(job.wait_for_lines(metrics, 2, 60s));
  job.signal_rank(1, SIGSTOP);
  std::this_thread::sleep_for(2s);
  job.signal_rank(0, SIGUSR2);
  for (int i = 0; i < 6000 && !job.has_said("rank 1 (stage 1, row 0), tag"); ++i) std::this_thread::sleep_for(10ms);
  job.signal_rank(1, SIGCONT);
  const int lines = static_cast<int>(lines_of(read_file(metrics)).size());
  CHECK(job.wait_for_lines(metrics, lines + 3, 60s));
  // Once more where mpirun put a line of one rank into one of the other.
  for (int i = 0; i < 6000 && !job.has_said("\nrank 1 (stage 1, row 0) "); ++i) {
    if (i % 200 == 0) job.signal_launcher(SIGUSR2);
    std::this_thread::sleep_for(10ms);
  }
  job.signal_launcher(SIGUSR1);
  const Outcome outcome = job.wait(60s);
  INFO(outcome.output);
  CHECK_FALSE(outcome.timed_out);
  CHECK(outcome.status == 75);
  CHECK(mentions(outcome, "rank 1 (stage 1, row 0), tag"));
  CHECK(mentions(outcome, "\n  messages  "));
  CHECK(mentions(outcome, "\nrank 1 (stage 1, row 0) "));
}

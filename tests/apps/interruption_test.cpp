// Runs that end early: by a signal, a failing rank, a rank that stops replying.
#include "tests/apps/small_run.hpp"

#include <csignal>
#include <thread>

using namespace ranvier::tests;
using namespace std::chrono_literals;

namespace {

std::ptrdiff_t acknowledgements(const Outcome& outcome) {
  const auto lines = lines_of(outcome.output);
  return std::count_if(lines.begin(), lines.end(), [](const auto& line) {
    // mpirun may put it into a line of another rank.
    const auto begin = line.find("ranvier: SIG");
    return begin != std::string::npos && line.find(": the run ends after step ", begin) != std::string::npos;
  });
}

struct Fixture : SmallText {
  /// Far longer than any test waits.
  [[nodiscard]] Flags long_run(const Flags& more = {}) const {
    return small_run(text, join({"--steps", "1000000", "--metrics", metrics, "--g-inter", "2"}, more));
  }

  /// Sends `signal` to the job once it trains; `status` is the expected status of mpirun.
  template <typename Signal>
  void check_stops_and_saves(const Signal& signal, int status, const Environment& environment = {}) const {
    const Flags sizes{"--hidden", "128", "--batch-size", "128", "--microbatch-size", "8"};
    Flags flags = join({"--save", weights}, sizes);
    std::filesystem::remove(metrics);
    Job job(4, long_run(flags), environment);
    REQUIRE(job.wait_for_lines(metrics, 3, 60s));
    signal(job);
    const Outcome outcome = require_status(status, job.wait(60s));
    check_has(outcome.output, {"stopped after"});
    CHECK(acknowledgements(outcome) == 1);
    check_has(outcome.output, {"saves to " + weights});
    ends_well(1, {"--init-from", weights, "--hidden", "128"}, 60s);
  }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "an interrupted mpirun stops after the current step and saves") {
  // Open MPI waits this many seconds before it passes the signal on, without reading output, and kills the ranks as
  // many seconds later. Steps here are long enough not to fill its pipe, short enough to end in time.
  check_stops_and_saves([](const Job& job) { job.signal_launcher(SIGINT); }, 1,
                        {{"OMPI_MCA_odls_base_sigkill_timeout", "5"}});
}

TEST_CASE_FIXTURE(Fixture, "a signal to one rank stops all after the current step, and they save") {
  for (const auto& [rank, number] : {std::pair{0, SIGINT}, {3, SIGTERM}})
    check_stops_and_saves([rank = rank, number = number](const Job& job) { job.signal_rank(rank, number); }, 75);
}

TEST_CASE_FIXTURE(Fixture,
                  "a hanging run ends by a second signal or its timeout, with the operation that it waits for") {
  const Environment hangs{{"RANVIER_FAULT", "0:3:hang"}};
  const auto flags = [&](const char* timeout) {
    return small_run(text, {"--steps", "1000000", "--metrics", metrics, "--timeout", timeout});
  };
  {
    Job job(1, flags("1000"), hangs);
    REQUIRE(job.wait_for_lines(metrics, 2, 60s));
    job.signal_rank(0, SIGTERM);
    job.wait_until_said("ranvier: SIGTERM");
    std::this_thread::sleep_for(1200ms);  // signals less than a second apart are one request
    job.signal_rank(0, SIGTERM);
    const Outcome outcome = require_failure(job.wait(60s));
    CHECK(acknowledgements(outcome) == 1);
    check_has(outcome.output, {"ended by a second SIGTERM", "is idle and waits for no rank"});
  }
  std::filesystem::remove(metrics);
  check_has(require_failure(run(1, flags("1"), 60s, hangs)).output, {"rank 0 (stage 0, row 0) stands still"});
}

TEST_CASE_FIXTURE(Fixture, "an exception on one rank during training ends all ranks within five seconds") {
  for (int rank = 0; rank < 4; ++rank) {
    std::filesystem::remove(metrics);
    const Outcome outcome =
        require_status(70, run(4, long_run(), 20s, {{"RANVIER_FAULT", std::to_string(rank) + ":3:throw"}}));
    CHECK(outcome.seconds < 5 + 5);  // until the third step, and five more
    const std::vector<std::string> messages = errors_of(outcome);
    REQUIRE(messages.size() == 1);
    check_has(messages[0], {"rank " + std::to_string(rank)});
  }
}

TEST_CASE_FIXTURE(Fixture, "a rank that stops replying is named by its neighbors and the job ends") {
  Job job(4, long_run({"--timeout", "3"}));
  REQUIRE(job.wait_for_lines(metrics, 2, 60s));
  job.signal_rank(3, SIGSTOP);
  const Outcome outcome = require_failure(job.wait(20s));
  check_has(outcome.output, {"ranvier-train: error: ", "rank 3", "does not answer", "tag", "--timeout 3"});
}

TEST_CASE_FIXTURE(Fixture,
                  "a peer that is lost in a collective is named with the operation, its unit and the step") {
  struct Case {
    const char* shard;
    const char* operation;
  };
  for (const Case& one :
       {Case{"zero3", "gather of the parameters of wte"}, Case{"zero1", "reduction of the gradients of"}}) {
    const Outcome outcome = require_failure(
        run(4, small_run(text, {"--steps", "100", "--g-data", "4", "--timeout", "2", "--shard", one.shard}), 40s,
            {{"RANVIER_FAULT", "2:3:hang"}}));
    check_has(outcome.output, {"ranvier-train: error: ", "rank 2", "step 3", one.operation});
  }
}

TEST_CASE_FIXTURE(Fixture, "a killed rank ends the job") {
  Job job(4, long_run());
  REQUIRE(job.wait_for_lines(metrics, 2, 60s));
  job.signal_rank(2, SIGKILL);
  require_status(128 + SIGKILL, job.wait(10s));  // the status that apps/restart_loop.sh treats as a lost process
}

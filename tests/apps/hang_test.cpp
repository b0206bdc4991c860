// Runs in which something hangs: which rank is named, and what is left alone.
#include "tests/apps/small_run.hpp"

#include <sys/stat.h>

#include <csignal>
#include <thread>

using namespace ranvier::tests;
using namespace std::chrono_literals;

TEST_CASE_FIXTURE(SmallText,
                  "a stream whose work does not end is named by its rank, with one, two and four ranks") {
  for (const auto& [ranks, faulty] : {std::pair{1, 0}, {2, 1}, {4, 2}}) {
    Flags flags = "--steps 100 --timeout 2";
    if (ranks > 1) flags.add("--g-inter 2");
    const Outcome outcome = require_failure(
        run(ranks, small_run(text, flags), 40s, {{"RANVIER_FAULT", std::to_string(faulty) + ":3:stream"}}));
    check_has(outcome.output,
              {"rank " + std::to_string(faulty) + " (stage ",
               "stands still: pipeline: the forward pass of microbatch 0", "stream 'compute', unfinished for"});
  }
}

TEST_CASE_FIXTURE(SmallText, "a file request that does not return is named with file and offset") {
  const Outcome outcome = require_failure(
      run(2, small_run(text, "--steps 100 --timeout 2 --g-data 2 --optimizer-tier nvme --nvme " + file("")), 40s,
          {{"RANVIER_FAULT", "1:3:file"}}));
  check_has(outcome.output,
            {"rank 1 (stage 0, row 1) stands still: tiers: a ", " bytes at offset ", " of " + file("")});
}

TEST_CASE_FIXTURE(SmallText, "SIGUSR2 makes every rank print its waits, and a stopped rank may continue") {
  Job job(2, small_run(text, "--steps 1000000 --metrics " + metrics + " --g-inter 2 --timeout 30"));
  REQUIRE(job.wait_for_lines(metrics, 2, 60s));
  job.signal_rank(1, SIGSTOP);
  std::this_thread::sleep_for(2s);
  job.signal_rank(0, SIGUSR2);
  job.wait_until_said("rank 1 (stage 1, row 0), tag");
  job.signal_rank(1, SIGCONT);
  const int lines = static_cast<int>(lines_of(read_file(metrics)).size());
  CHECK(job.wait_for_lines(metrics, lines + 3, 60s));
  // Once more in case mpirun put a line of one rank into one of the other.
  for (int i = 0; i < 6000 && !job.has_said("\nrank 1 (stage 1, row 0) "); ++i) {
    if (i % 200 == 0) job.signal_launcher(SIGUSR2);
    std::this_thread::sleep_for(10ms);
  }
  job.signal_launcher(SIGUSR1);
  check_output(75, job.wait(60s), {"rank 1 (stage 1, row 0), tag", "\n  messages  ", "\nrank 1 (stage 1, row 0) "});
}

TEST_CASE_FIXTURE(SmallText, "a load that does not return ends the job with rank, item and source") {
  const std::string weights = file("weights");
  REQUIRE(run(1, small_run(text, "--steps 1 --save " + weights), 40s).status == 0);
  for (const auto& [ranks, faulty] : {std::pair{1, 0}, {2, 1}}) {
    Flags flags = "--init-from " + weights + " --timeout 1";
    if (ranks > 1) flags.add("--g-inter 2");
    const Outcome outcome = require_status(
        72, run(ranks, small_run(text, flags), 40s, {{"RANVIER_FAULT", std::to_string(faulty) + ":2:load"}}));
    check_has(outcome.output,
              {"rank " + std::to_string(faulty) + " (stage ", "stands still: it loads its states: the weights of ",
               " from " + weights + ", for ", "and nothing has moved for 1.0 s (--timeout 1)"});
  }
}

TEST_CASE_FIXTURE(SmallText,
                  "a load that is slow but makes progress is left alone, also by ranks that wait for it") {
  std::vector<std::vector<std::string>> losses;
  for (const char* fault : {"", "1:1:slow-load:3"}) {
    const std::string metrics = file(*fault == '\0' ? "usual" : "slow");
    const Outcome outcome =
        ends_well(2, "--metrics " + metrics + " --g-inter 2 --timeout 1", 100s, {{"RANVIER_FAULT", fault}});
    if (*fault != '\0') CHECK(outcome.seconds > 10);  // longer than any wait without progress may last
    losses.push_back(metric(metrics, "loss"));
  }
  CHECK(losses[0] == losses[1]);
}

TEST_CASE_FIXTURE(SmallText,
                  "a checkpoint that is slow to read but makes progress is left alone, also if handlers read it") {
  const Flags flags =
      "--steps 1 --checkpoint " + file("checkpoints") + " --timeout 0.5 --resume auto --lr-decay constant";
  REQUIRE(run(1, small_run(text, flags), 40s).status == 0);
  Flags more = flags;
  more[1] = "2";
  ends_well(1, more, 60s, {{"RANVIER_FAULT", "0:1:slow-load:1"}});
}

TEST_CASE_FIXTURE(SmallText,
                  "data that do not return are named, and waiting ranks report the rank that they wait for") {
  check_output(72, run(2, small_run(text, "--g-inter 2 --timeout 1"), 40s, {{"RANVIER_FAULT", "1:1:data"}}),
               {"rank 1 (stage 1, row 0) stands still: it opens its data: " + text + ", for "});
}

TEST_CASE_FIXTURE(SmallText, "a rank that is stopped during startup is named, with its last report") {
  Job job(2, small_run(text, "--g-inter 2 --timeout 0.5"), {{"RANVIER_FAULT", "1:1:slow-load:1000"}});
  // SIGUSR2 stops nothing, and makes each rank print its activity.
  for (int i = 0; i < 6000 && !job.has_said("chooses") && !job.has_said("grid: "); ++i)
    std::this_thread::sleep_for(10ms);
  const auto says = [&](const std::string& words) {
    for (int i = 0; i < 600 && !job.has_said(words); ++i) {
      if (i % 20 == 0) job.signal_launcher(SIGUSR2);
      std::this_thread::sleep_for(50ms);
    }
    return job.has_said(words);
  };
  CHECK(says("rank 1 (stage 1, row 0) loads its states: the weights of "));
  CHECK(says("rank 0 (stage 0, row 0) loads its states: waits for "));
  CHECK(says(" s for rank 1 (stage 1, row 0), which loads its states: the weights of "));
  job.signal_rank(1, SIGSTOP);
  const Outcome outcome = require_status(76, job.wait(60s));
  check_has(outcome.output,
            {"error: rank 1 (stage 1, row 0) does not answer: rank 0 (stage 0, row 0) has waited for ",
             " (ten times --timeout 0.5); its last report: it loads its states: the weights of "});
}

TEST_CASE_FIXTURE(SmallText, "a pipe in place of a file is refused at once") {
  const std::string pipe = file("pipe");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  for (const Flags& flags : std::vector<Flags>{"--data " + pipe, "--data " + pipe + " --token-format text",
                                               "--data " + pipe + " --token-format uint16",
                                               "--data " + text + ":0.5," + pipe + ":0.5", "--tokenizer " + pipe,
                                               "--init-from " + pipe, "--hellaswag " + pipe + " --eval-every 1"}) {
    CAPTURE(flags[0]);
    check_output(74, run(1, small_run(text, flags), 20s), {pipe});
  }
}

TEST_CASE_FIXTURE(
    SmallText, "a terminal that blocks for longer than the timeout delays the end of a run by the timeout only") {
  // Without mpirun, which would read all output.
  const std::string pipeline =
      "while [ \"$1\" != " RANVIER_PROGRAM " ]; do shift; done; { \"$@\"; echo ended with $? >&2; } | sleep 6";
  Job job({"sh", "-c", pipeline, "sh"}, 1, small_run(text, "--layers 1 --steps 1500 --log-every 1 --timeout 1"));
  const Outcome outcome = job.wait(60s);
  INFO(outcome.output);
  CHECK_FALSE(outcome.timed_out);
  check_has(outcome.output, {"ended with 0"});
}

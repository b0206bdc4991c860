// Bad steps, and corrupted states, in complete jobs.
#include "tests/apps/small_run.hpp"

using namespace ranvier::tests;
using namespace std::chrono_literals;

TEST_CASE_FIXTURE(SmallText, "a step whose gradients are NaN is skipped on all ranks, and reported") {
  check_has(ends_well(2, {"--g-inter", "2", "--clip", "0", "--bad-steps", "skip", "--metrics", metrics}, 60s,
                      {{"RANVIER_FAULT", "1:2:nan"}})
                .output,
            {"step 2/4  bad step: gradient norm is nan at loss "});
  const std::string lines = read_file(metrics);
  CHECK(lines_of(lines).size() == 5);
  check_has(lines, {R"({"bad_step":2,"reason":"gradient norm","action":"skip",)"});
  CHECK(lines.find("\"skipped\":true") == lines.rfind("\"skipped\":true"));
  check_has(lines, {"\"skipped\":true"});
}

TEST_CASE_FIXTURE(SmallText, "a bit flip in a state on any tier is detected, and ends the job") {
  const Outcome outcome = require_failure(
      run(3,
          small_run(text, {"--g-data", "3", "--batch-size", "6", "--offload", "infinity-nvme", "--nvme", file(""),
                           "--precision", "bf16", "--check-every", "2", "--metrics", metrics}),
          60s, {{"RANVIER_FAULT", "1:3:flip-m"}}));
  check_has(outcome.output, {"step 2/4  replica check: compared ",
                             "error: step 4: replica mismatch: rank 1 (stage 0, row 1) differs from ranks 0, 2 in ",
                             " of the m of wte; test the memory"});
  check_has(read_file(metrics), {R"({"damage":4,"unit":"wte","state":"m","begin":0,)",
                                 R"("ranks":[1],"others":[0,2],"action":"stop"})"});
}

TEST_CASE_FIXTURE(SmallText,
                  "a bad step is rolled back to the last checkpoint in the same job, without its samples") {
  const Outcome outcome = ends_well(
      2,
      {"--g-inter", "2", "--steps", "8", "--bad-steps", "rollback", "--checkpoint", file("kept"),
       "--checkpoint-every", "2", "--check-every", "3", "--metrics", metrics, "--trace", file("trace.json")},
      60s, {{"RANVIER_FAULT", "1:5:nan"}});
  // One of the steps that were rolled back, and one of the following ones.
  check_has(outcome.output, {"trace: " + file("trace.json"), "trace: " + file("trace.from-")});
  check_has(read_file(file("trace.json")), {"traceEvents"});
  check_has(outcome.output, {"step 5/8  bad step: gradient norm is nan at loss ",
                             "resumed from " + file("kept") + "/step-0000000"});
  CHECK(metric(metrics, "step") == std::vector<std::string>{"1", "2", "3", "4", "5", "6", "7", "8"});
  check_has(read_file(metrics), {R"({"bad_step":5,"reason":"gradient norm","action":"rollback",)"});

  // Before a run has its own checkpoint, it rolls back to the one that it resumed from.
  const Outcome later =
      ends_well(2,
                {"--g-inter", "2", "--steps", "10", "--resume-with", "steps,warmup-steps", "--bad-steps",
                 "rollback", "--resume", file("kept"), "--checkpoint", file("others"), "--metrics", metrics},
                60s, {{"RANVIER_FAULT", "1:10:nan"}});
  const std::string resumed = "resumed from " + file("kept") + "/step-00000008";
  check_has(later.output, {resumed});
  CHECK(later.output.find(resumed) != later.output.rfind(resumed));
  CHECK(lines_of(read_file(metrics)).back().find("{\"checkpoint\":10,") == 0);
}

// Uneven runs: messages about a slow split of layers, and about a slow rank.
#include "tests/apps/small_run.hpp"

#include <regex>

using namespace ranvier::tests;
using namespace std::chrono_literals;

TEST_CASE_FIXTURE(SmallText, "a better split of layers is printed, and the next start uses it with a checkpoint") {
  const auto train = [&](int ranks, const Flags& more) { return ends_well(ranks, more, 60s).output; };
  const Flags all = "--lr-decay constant";  // and as many warm-up steps as the first start has by default
  const auto with = [&](Flags flags) { return join(flags, all); };
  train(1, with("--steps 20 --warmup-steps 1 --save " + file("one.safetensors")));
  Flags flags =
      with("--steps 10 --g-inter 2 --layers-per-stage 1,5 --checkpoint " + file("kept") + " --metrics " + metrics);
  flags.push_back("--rebalance");
  const std::string output = train(2, flags);
  check_has(output, {"rebalance: --layers-per-stage 1,5 computes "});
  check_has(read_file(metrics), {R"({"rebalance":6,"layers_per_stage":[1,5],"stage_seconds":[{"forward":)"});
  std::smatch better;
  REQUIRE(std::regex_search(output, better, std::regex("--layers-per-stage (\\d+,\\d+) would compute ")));
  const std::string split = better[1];
  CHECK(std::stoi(split) > 1);
  const std::string resumed =
      train(2, with("--steps 20 --g-inter 2 --layers-per-stage " + split + " --checkpoint " + file("kept") +
                    " --resume auto --save " + file("two.safetensors")));
  check_has(resumed, {"--layers-per-stage " + split + " (was 1,5)"});
  CHECK((read_file(file("two.safetensors")) == read_file(file("one.safetensors"))));
}

TEST_CASE_FIXTURE(SmallText, "a slow rank is named while it slows the job") {
  const Outcome outcome =
      ends_well(2, "--g-data 2 --steps 40 --metrics " + metrics, 60s,
                {{"RANVIER_FAULT", "1:3:slow:100"}});  // far above the time that other processes take from rank 0
  check_has(outcome.output, {"straggler: rank 1 (stage 0, row 1) computes "});
  check_has(read_file(metrics), {R"("stragglers":[)", R"({"rank":1,"times":)"});
}

TEST_CASE_FIXTURE(SmallText,
                  "a split that does not fit is refused with a valid one, and so is a rank with too high a speed") {
  check_output(64, run(2, small_run(text, "--g-inter 2 --layers-per-stage 2,2"), 20s),
               {"use numbers that add up to 6"});
  check_output(64, run(1, small_run(text), 20s, {{"RANVIER_FAULT", "0:1:slow:0.5"}}), {"slow:TIMES (1 to 1000)"});
}

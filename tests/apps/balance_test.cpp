// Uneven runs: messages about a slow split of layers, and about a slow rank.
#include "tests/apps/small_run.hpp"

#include <boost/json/parse.hpp>

using namespace ranvier::tests;
using namespace std::chrono_literals;

namespace {

/// The lines of a metrics file that have a field of that name.
std::vector<boost::json::object> with_field(const std::string& path, const char* name) {
  std::vector<boost::json::object> all;
  for (const std::string& line : lines_of(read_file(path))) {
    auto object = boost::json::parse(line).as_object();
    if (object.contains(name)) all.push_back(std::move(object));
  }
  return all;
}

}  // namespace

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
  const auto lines = with_field(metrics, "rebalance");
  REQUIRE(lines.size() == 1);
  const boost::json::object& line = lines.front();
  CHECK(line.at("rebalance") == 6);
  CHECK(line.at("layers_per_stage") == boost::json::array{1, 5});
  const auto& better = line.at("better_layers_per_stage").as_array();
  REQUIRE(better.size() == 2);
  CHECK(better[0].as_int64() > 1);
  CHECK(line.at("better_step_seconds").to_number<double>() < line.at("step_seconds").to_number<double>());
  for (const auto& stage : line.at("stage_seconds").as_array()) {
    CHECK(stage.at("forward").to_number<double>() > 0);
    CHECK(stage.at("weights").to_number<double>() > 0);
  }
  const std::string split = std::to_string(better[0].as_int64()) + "," + std::to_string(better[1].as_int64());
  check_has(output, {"--layers-per-stage " + split + " would compute "});
  const std::string resumed =
      train(2, with("--steps 20 --g-inter 2 --layers-per-stage " + split + " --checkpoint " + file("kept") +
                    " --resume auto --save " + file("two.safetensors")));
  check_has(resumed, {"--layers-per-stage " + split + " (was 1,5)"});
  CHECK((read_file(file("two.safetensors")) == read_file(file("one.safetensors"))));
}

TEST_CASE_FIXTURE(SmallText, "a slow rank is named while it slows the job") {
  const Outcome outcome =
      run(2, small_run(text, "--g-data 2 --steps 40 --metrics " + metrics), 60s,
          {{"RANVIER_FAULT", "1:3:slow:100"}});  // far above the time that other processes take from rank 0
  INFO(outcome.output);
  REQUIRE(outcome.status == 0);
  check_has(outcome.output, {"straggler: rank 1 (stage 0, row 1) computes "});
  const auto lines = with_field(metrics, "stragglers");
  REQUIRE(!lines.empty());
  const auto& named = lines.back().at("stragglers").as_array();
  const auto slow = std::find_if(named.begin(), named.end(), [](const auto& each) { return each.at("rank") == 1; });
  REQUIRE(slow != named.end());
  CHECK(slow->at("times").template to_number<double>() > 2);
  CHECK(slow->at("seconds_per_step").template to_number<double>() > 0);
}

TEST_CASE_FIXTURE(SmallText,
                  "a split that does not fit is refused with a valid one, and so is a rank with too high a speed") {
  check_output(64, run(2, small_run(text, "--g-inter 2 --layers-per-stage 2,2"), 20s),
               {"use numbers that add up to 6"});
  check_output(64, run(1, small_run(text), 20s, {{"RANVIER_FAULT", "0:1:slow:0.5"}}), {"slow:TIMES (1 to 1000)"});
}

// Predictions that ranvier-plan requests: scenarios that differ from the plan, and simulated rows.
#include "apps/plan/plan_run.hpp"
#include "tests/apps/small_plan.hpp"

using namespace ranvier;
using namespace ranvier::tests;
using apps::PlanTools;

namespace {

/// Arguments of one prediction.
struct Asked {
  int ranks = 0;
  actors::PredictionOptions how;
};

/// Runs a plan of 16 ranks on 8 nodes, with predictions that all take a second.
struct Run {
  std::vector<Asked> asked;
  std::vector<std::string> said;
  std::string text;

  explicit Run(const Flags& more, const std::string& world = "16") {
    Flags words =
        "--layers 16 --hidden 64 --heads 2 --sequence-length 32 --node-size 2 --batch-size 1024 --profile test-gpu "
        "--jobs 1 --simulations 1 --shard zero1 --offload none --recompute off --microbatch-size 1 --policy 1f1b "
        "--all-gather auto --reduce-scatter auto --all-reduce auto";
    if (!world.empty()) words.add("--world " + world);
    words.add(more);
    const PlanTools tools{
        .predict =
            [this](const models::Architecture&, const models::SampleSource&, const actors::TrainerOptions& options,
                   const runtime::MachineProfile&, const actors::PredictionOptions& how) {
              asked.push_back({options.grid.ranks(), how});
              actors::Prediction prediction;
              prediction.step_seconds = 1;
              prediction.tokens_per_second = options.batch_size;
              return prediction;
            },
        .read_profile = [](const std::string&) { return plan_profile(true); },
        .print = [this](const std::string& line, bool) { said.push_back(line); }};
    text = apps::run_plan(parse(words), tools).text;
  }

  [[nodiscard]] bool has(const std::string& words) const { return text.find(words) != std::string::npos; }
};

std::size_t slow_ones(const std::vector<double>& factors, double factor) {
  return static_cast<std::size_t>(std::count(factors.begin(), factors.end(), factor));
}

}  // namespace

TEST_CASE("a fraction of slow ranks or links, and varying work, as what-if cases") {
  const Run run("--slow-ranks 0.25:1.5 --slow-links 0.5:3,0.01:2 --jitter=0.1");
  for (const char* label :
       {"25% of ranks × 1.5 as slow", "50% of links × 3 as slow", "1% of links × 2 as slow", "jitter of 0.1"})
    CHECK(run.has(label));
  // Each case has its own search, and then a prediction of the first case's best candidate.
  REQUIRE(run.asked.size() == 10);
  const auto& how = [&](std::size_t i) -> const actors::Disturbances& { return run.asked[i].how.disturbances; };
  CHECK(how(0).slow_ranks.empty());
  for (const std::size_t i : {2, 3}) {
    CHECK(how(i).slow_ranks.size() == 16);
    CHECK(slow_ones(how(i).slow_ranks, 1.5) == 4);
    CHECK(slow_ones(how(i).slow_ranks, 1) == 12);
    CHECK(how(i).slow_nodes.empty());
  }
  CHECK(how(2).slow_ranks == how(3).slow_ranks);
  CHECK(slow_ones(how(4).slow_nodes, 3) == 4);
  CHECK(how(4).slow_nodes.size() == 8);
  CHECK(slow_ones(how(6).slow_nodes, 2) == 1);  // at least one
  CHECK(how(6).slow_ranks.empty());
  CHECK(how(8).jitter == 0.1);
  // The ranks are drawn randomly; they are not the first ones.
  CHECK(Run("--slow-ranks 0.25:1.5").asked[2].how.disturbances.slow_ranks == how(2).slow_ranks);
  CHECK(!std::is_sorted(how(2).slow_ranks.begin(), how(2).slow_ranks.end()));
  CHECK(!std::is_sorted(how(2).slow_ranks.rbegin(), how(2).slow_ranks.rend()));
}

TEST_CASE("random choices are the same for the same number, and different for another one") {
  const auto draws = [](const char* number) {
    std::vector<actors::Disturbances> all;
    for (const Asked& asked :
         Run(fmt::format("--slow-ranks 0.25:1.5 --slow-links 0.5:3 --jitter 0.1 --draw {}", number)).asked)
      all.push_back(asked.how.disturbances);
    REQUIRE(all.size() == 8);
    return all;
  };
  const auto zero = draws("0"), again = draws("0"), one = draws("1");
  const auto usual = Run("--slow-ranks 0.25:1.5").asked;
  CHECK(zero[2].slow_ranks == usual[2].how.disturbances.slow_ranks);
  CHECK(zero[2].slow_ranks == again[2].slow_ranks);
  CHECK(zero[2].slow_ranks != one[2].slow_ranks);
  CHECK(slow_ones(one[2].slow_ranks, 1.5) == 4);
  CHECK(zero[4].slow_nodes != one[4].slow_nodes);
  CHECK(zero[6].seed == again[6].seed);
  CHECK(zero[6].seed != one[6].seed);
  CHECK(one[0].seed == zero[0].seed);  // nothing is drawn for the profile's case
  CHECK(says(printed_error_of([] { Run("--draw -1"); }), "--draw"));
}

TEST_CASE("a what-if case without overlap of computing and collectives") {
  const Run run("--no-overlap");
  CHECK(run.has("no overlap"));
  REQUIRE(run.asked.size() == 4);
  CHECK_FALSE(run.asked[1].how.disturbances.no_overlap);
  CHECK(run.asked[2].how.disturbances.no_overlap);
  CHECK(says(printed_error_of([] { Run("--no-overlap --collectives plans"); }),
             "cannot be combined with --collectives plans"));
}

TEST_CASE("in a what-if case with dead ranks their nodes are unused, and the others are planned again") {
  const Run run("--dead-ranks 1,3");
  CHECK(run.has("1 dead, 14 ranks left"));
  std::vector<int> worlds;
  for (const Asked& asked : run.asked) worlds.push_back(asked.ranks);
  CHECK(worlds.front() == 16);
  CHECK(std::count(worlds.begin(), worlds.end(), 14) == 1);
  // Three of them may share nodes.
  CHECK(worlds.back() < 14);
  CHECK(worlds.back() >= 10);
  CHECK(worlds.back() % 2 == 0);
  CHECK(says(printed_error_of([] { Run("--dead-ranks 16"); }), "--dead-ranks 16 leaves none of 16 ranks"));
  CHECK(says(printed_error_of([] { Run("--dead-ranks 15"); }), "--dead-ranks 15 leaves no node"));
  CHECK(says(printed_error_of([] { Run("--dead-ranks 0"); }), "numbers above 0"));
  for (const char* value : {"0.5", "0:2", "1.5:2", "0.5:0.5", "x:2"})
    CHECK(says(printed_error_of([&] { Run(fmt::format("--slow-ranks {}", value)); }), "such as 0.1:1.5"));
}

TEST_CASE("for many ranks a plan simulates one of each set of equivalent rows by default") {
  const auto distinct = [](const Run& run) {
    REQUIRE(!run.asked.empty());
    return run.asked.front().how.distinct_only;
  };
  CHECK(!distinct(Run({})));
  CHECK(distinct(Run("--rows distinct")));
  CHECK(distinct(Run({}, "256")));
  CHECK(!distinct(Run("--rows all", "256")));
  CHECK(!distinct(Run("--scale 8,16", "")));
  CHECK(distinct(Run("--scale 8,16 --rows=distinct", "")));
  CHECK(says(printed_error_of([] { Run("--rows some"); }), "all, distinct, auto"));
}

TEST_CASE("a plan reports its progress") {
  const Run run("--scale 8,16", "");
  REQUIRE(run.said.size() > 4);
  CHECK(run.said.front().starts_with("8 ranks: "));
  const auto is_result = [](const std::string& line) { return line.find(" s per step, ") != std::string::npos; };
  CHECK(std::count_if(run.said.begin(), run.said.end(), is_result) == 2);
  CHECK(run.said.back().starts_with("16 ranks: 1.000 s per step"));
  const auto simulates = [](const std::string& line) {
    return line.find("simulating 1 more") != std::string::npos;
  };
  CHECK(std::count_if(run.said.begin(), run.said.end(), simulates) == 2);
}

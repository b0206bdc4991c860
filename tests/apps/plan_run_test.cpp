#include "apps/plan/plan_run.hpp"

#include "apps/memory/job_plan.hpp"
#include "apps/plan/plan_report.hpp"
#include "apps/plan/scaling.hpp"
#include "runtime/base/error.hpp"
#include "tests/apps/small_plan.hpp"
#include "tests/apps/train_flags.hpp"

#include <fmt/format.h>

using namespace ranvier;
using namespace ranvier::tests;
using apps::Candidate;
using apps::PlanOptions;
using apps::PlanResult;
using apps::PlanTools;
using apps::run_plan;
using runtime::MemorySpace;

namespace {

/// Reads the flags like ranvier-train, on existing ranks.
apps::TrainOptions as_trained(const std::vector<apps::GivenFlag>& flags, int world) {
  Flags words;
  for (const auto& flag : flags)
    if (flag.name != "device" && flag.name != "collectives") words.push_back("--" + flag.name + "=" + flag.value);
  return parse_train(words, world);
}

}  // namespace

// planned_memory_test compares it with allocated memory.
TEST_CASE("ranvier-plan's memory is exactly the memory that a job of its config plans, on every rank") {
  std::mt19937 draw(20);
  const TemporaryFolder folder;
  for (const auto& [gpu, chunks] : {std::pair{false, 1}, {true, 1}, {false, 2}}) {
    const runtime::MachineProfile profile = plan_profile(gpu);
    auto flags = small_gpt_flags(8, 4, 16);
    if (chunks > 1) flags.push_back({"chunks-per-rank", std::to_string(chunks)});
    flags.push_back({"layers", "6"});
    flags.erase(flags.begin());
    flags.push_back({"nvme", folder.path() / "disk"});
    if (gpu) flags.push_back({"precision", "bf16"});
    const apps::Planner planner(flags, profile);
    const auto candidates = make_space(planner.space()).candidates;
    REQUIRE(candidates.size() > 100);
    CAPTURE(chunks);
    for (int n = 0; n < effort(30, 150, 3) / chunks; ++n) {
      Candidate candidate = candidates[draw() % candidates.size()];
      apps::PlannedCandidate trial = planner.plan(candidate);
      if (auto filled = planner.with_budget(candidate, trial)) std::tie(candidate, trial) = std::move(*filled);
      CAPTURE(candidate.text());
      const apps::TrainOptions options = as_trained(planner.config_of(candidate, trial), planner.world());
      // A candidate sets fields; its flags mean the same.
      const auto set = resolved_map(planner.options_of(candidate));
      for (const auto& [name, value] : resolved_map(options))
        if (name != "threads" && name != "prefetch" && name != "dry-run" && name != "device")
          CHECK(set.at(name) == value);
      actors::TrainerOptions trainer = options.trainer;
      trainer.threads = gpu ? 1 : options.device.threads;
      trainer.node_of = nodes_of(options, {});
      trainer.links = profile.links;  // the config names a links file
      trainer.gpu = trial.trainer.gpu;
      trainer.device_bytes = trial.trainer.device_bytes;
      std::size_t most = 0;
      for (int rank = 0; rank < planner.world(); ++rank) {
        const auto plan = actors::plan_rank(planner.job().architecture, planner.job().sample, trainer, rank);
        const auto& planned = trial.plans.stage(static_cast<std::size_t>(plan.position.stage)).memory;
        REQUIRE(planned.items().size() == plan.memory.items().size());
        for (std::size_t i = 0; i < planned.items().size(); ++i) {
          const runtime::MemoryItem &item = planned.items()[i], &own = plan.memory.items()[i];
          INFO("rank ", rank, ", ", own.name);
          CHECK(std::tie(item.slot_bytes, item.slots, item.space, item.kind) ==
                std::tie(own.slot_bytes, own.slots, own.space, own.kind));
        }
        most = std::max(most, plan.memory.bytes(MemorySpace::device));
      }
      CHECK(trial.needs.device == most);
    }
  }
}

TEST_CASE(
    "ranvier-plan prints the best ten with their memory, links and cost, and the number of excluded candidates") {
  const PlanResult result = plan_small_job({});
  CHECK(result.status == 0);
  check_has(result.text, {"10  ", "left out", "activations", "cost/M tokens"});
  // Four stages are the fastest, with one microbatch per row and batch.
  check_has(result.text, {"  1  4 × 1, 8 per microbatch", "25.0%"});
  // Only links with traffic are listed.
  check_has(result.text, {"by link, maximum over ranks\n        host to GPU\n  1         5.0 MiB\n"});
}

TEST_CASE("ranvier-train reads the config file of ranvier-plan as the planned job") {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "best.conf";
  const PlanResult result = plan_small_job("--write-config " + path + " --g-inter 2 --learning-rate 0.001");
  CHECK(result.status == 0);
  check_has(read_file(path), {"# predicted"});
  const auto options = parse_train("--config " + path);
  check_values(options,
               "--g-inter 2 --g-data 2 --microbatch-size 4 --batch-size 8 --learning-rate 0.001 --hidden 64 "
               "--threads 1");
  CHECK(options.trainer.links == plan_profile(false).links);
}

TEST_CASE("a plan prints the step time with messages in int8 between nodes, and its search does not choose them") {
  using collectives::WireType;
  double gather_factor = 1, reduce_factor = 1;
  PlanTools tools = invented_tools();
  tools.predict = [&](const models::Architecture& architecture, const models::SampleSource& sample,
                      const actors::TrainerOptions& options, const runtime::MachineProfile& profile,
                      const actors::PredictionOptions& how) {
    actors::Prediction prediction = invented(architecture, sample, options, profile, how);
    prediction.traffic.front().inter = 1000;
    if (options.wire.gather.inter_node == WireType::int8) prediction.step_seconds *= gather_factor;
    if (options.wire.reduce.inter_node == WireType::int8) prediction.step_seconds *= reduce_factor;
    return prediction;
  };
  const auto planned = [&](const Flags& flags, const char* shard = "zero3") {
    const Flags common = fmt::format("--g-inter 1 --shard {} --recompute off --microbatch-size 2", shard);
    return plan_small_job(join(common, flags), tools).text;
  };
  check_lacks(planned({}), {"rounds messages"});  // no gain
  gather_factor = 0.8;
  reduce_factor = 0.5;
  check_has(planned({}),
            {"\nthe best plan with --gather-dtype inter=int8 --reduce-dtype inter=int8 (rounds messages "
             "between nodes): ",
             ", 2.50 × as fast\n"});
  check_has(planned("--gather-dtype int8"), {"with --reduce-dtype inter=int8 (", "2.00 × as fast"});
  check_lacks(planned("--gather-dtype same --reduce-dtype int4"), {"rounds messages"});
  // In fp32 a refresh in int8 is refused; reductions are not.
  check_has(planned("--precision fp32", "zero1"), {"with --reduce-dtype inter=int8 (", "2.00 × as fast"});
}

TEST_CASE("a plan replaces the files of another one only with --overwrite") {
  const TemporaryFolder folder;
  const auto at = [&](const char* name) { return (folder.path() / name).string(); };
  Flags flags = fmt::format(
      "--write-config {} --plot {} --write-trace {} --slow-node 1:3 --g-inter 2 --shard zero1 --recompute off",
      at("a.conf"), at("a.svg"), at("a.json"));
  for (const auto& [name, flag] : {std::pair{"a.conf", "--write-config"},
                                   {"a.conf.links.json", "--write-config"},
                                   {"a.svg", "--plot"},
                                   {"a.json", "--write-trace"},
                                   {"a.2.json", "--write-trace"}}) {
    const auto there = folder.write(name, "another plan's");
    refused_plan(small_job(flags),
                 fmt::format("{} exists: {}; add --overwrite or use another path", flag, there.string()));
    std::filesystem::remove(there);
  }
  flags = {"--write-config", folder.write("a.conf", "another plan's").string(), "--g-inter", "2", "--overwrite"};
  CHECK(plan_small_job(flags).status == 0);
  check_has(read_file(at("a.conf")), {"# predicted"});
}

TEST_CASE("a plan reports the run's output files, and that it does not write them") {
  const TemporaryFolder folder;
  const std::string metrics = folder.path() / "m.jsonl", trace = folder.path() / "t.json";
  const auto planned = [](const Flags& more) {
    return plan_small_job(join(more, "--microbatch-size 2 --shard zero1"));
  };
  const auto result = planned(fmt::format("--metrics {} --trace {}", metrics, trace));
  CAPTURE(result.text);
  check_has(result.text, {"does not write these files: --metrics " + metrics + ", --trace " + trace});
  CHECK(!std::filesystem::exists(metrics));
  CHECK(!std::filesystem::exists(trace));
  check_lacks(planned({}).text, {"does not write"});
}

TEST_CASE("given model chunks are part of every candidate, and of its config file") {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "best.conf";
  const PlanResult result = plan_small_job("--write-config " + path + " --chunks-per-rank 2");
  CHECK(result.status == 0);
  check_has(result.text, {"needs several stages", "more model chunks than 6 layers"});
  const auto options = parse_train("--config " + path);
  check_values(options, "--chunks-per-rank 2 --g-inter 2 --pipeline-limit 0");
  // By chunk, which determines the number of stages.
  const auto json = plan_in_json("--chunks-per-rank 2 --layers-per-stage 1,2,2,1");
  for (const auto& best : json.at("best").as_array()) {
    CHECK(best.at("flags").at("g-inter").as_string() == "2");
    CHECK(best.at("flags").at("layers-per-stage").as_string() == "1,2,2,1");
  }
  CHECK(json.at("best").as_array().size() > 1);
  const Flags both = "--chunks-per-rank 2 --g-inter 2 --policy zb-h1";
  refused_plan(small_job(both), "--chunks-per-rank 2 does not work with --policy zb-h1");
}

TEST_CASE("ranvier-plan --json has the best candidates, their flags and the excluded ones") {
  const auto json = plan_in_json("--best 3");
  const auto& best = json.at("best").as_array();
  REQUIRE(best.size() == 3);
  CHECK(best[0].at("flags").at("g-inter").as_string() == "4");
  CHECK(best[0].at("tokens_per_second").as_double() >= best[2].at("tokens_per_second").as_double());
  CHECK(json.at("left_out").as_object().size() > 0);
  CHECK(best[0].at("device_bytes_by_kind").at("parameters").as_int64() > 0);
  CHECK(best[0].at("saved_activations").as_string() == "few");
  CHECK(best[0].at("bytes_to_device").as_double() == 5 << 20);
  CHECK(best[0].at("file_bytes_read").as_double() == 0);
}

TEST_CASE("on GPUs with enough memory, ranvier-plan saves all activations, unless few are requested") {
  for (const char* const saved : {"auto", "few"}) {
    auto words = small_job(fmt::format("--json --best 1 --saved-activations {}", saved));
    std::replace(words.begin(), words.end(), std::string("test-cpu"), std::string("test-gpu"));
    const auto json = boost::json::parse(run_plan(parse(words), invented_tools()).text);
    const std::string expected = saved == std::string("auto") ? "all" : "few";
    CHECK(json.at("best").as_array().at(0).at("saved_activations").as_string() == expected);
  }
}

TEST_CASE("a prediction without a search has no bound") {
  const auto words = small_job("--json --bandwidth-times 2 --microbatch-size 2 --shard zero1");
  const auto json = boost::json::parse(run_plan(parse(words), invented_tools()).text);
  const auto& cases = json.at("what_if").as_array();
  REQUIRE(cases.size() == 2);
  for (const auto& one : cases) {
    CHECK(one.at("best").at("bound_seconds").as_double() > 0);
    CHECK(one.at("unchanged").at("bound_seconds").is_null());
  }
}

TEST_CASE("each what-if case has its best candidate, and the result of the first case's best") {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "cases.svg";
  const PlanResult result =
      plan_small_job("--bandwidth-times 2,4 --memory-times=0.5 --slow-node 1:3 --profile test-gpu --plot " + path +
                     " --microbatch-size 2");
  check_has(result.text, {"bandwidth × 2", "bandwidth × 4", "memory × 0.5", "node 1 × 3 as slow", "test-gpu"});
  check_has(result.text, {"unchanged"});
  const std::string svg = read_file(path);
  CHECK(svg.starts_with("<svg"));
  check_has(svg, {"bandwidth × 4", "prefers-color-scheme:dark"});
  check_has(result.text, {"0.33"});  // three times as slow
}

TEST_CASE("ranvier-plan --scale has the best candidate for each number of ranks, and its bottleneck") {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "scale.svg";
  Flags words =
      "--layers 4 --hidden 64 --heads 2 --sequence-length 32 --node-size 2 --batch-size 8 --profile test-cpu "
      "--scale 2,4,8 --g-inter 2 --jobs 1";
  const auto with = [&](const Flags& more) { return run_plan(parse(few(join(words, more))), invented_tools()); };
  const PlanResult table = with("--plot " + path);
  CHECK(table.status == 0);
  check_has(table.text, {"bottleneck"});
  check_has(read_file(path), {"2 to 8 ranks on test-cpu", "8: 2 × 4"});
  const auto json = boost::json::parse(with("--json").text);
  const auto& points = json.at("scale").as_array();
  REQUIRE(points.size() == 3);
  double before = 1;
  for (const auto& point : points) {
    // The synthetic time has 0.2 s for links and 0.5 s for stages; the rest depends on microbatches.
    const double micro = 0.1 / std::stod(point.at("best").at("flags").at("microbatch-size").as_string().c_str());
    CHECK(point.at("shares").at("links").as_double() == doctest::Approx(0.2 / (0.7 + micro)).epsilon(1e-4));
    CHECK(point.at("limit").as_string() == "links");
    CHECK(point.at("ideal").as_double() <= before);
    before = point.at("ideal").as_double();
  }
  CHECK(points[2].at("world").as_int64() == 8);
  // Numbers of ranks without a grid do not affect the others.
  words[static_cast<std::size_t>(std::find(words.begin(), words.end(), "2,4,8") - words.begin())] = "2,6,8";
  const PlanResult some = with({});
  CHECK(some.status == 0);
  check_has(some.text, {"     6  no grid of 6 ranks is possible: ", "     8  "});
}

TEST_CASE("a step's bottleneck is the largest avoidable part, and computing if that is small") {
  CHECK(apps::StepShares{.links = 0.05, .order = 0.09, .memory = 0.01}.limit() == "compute");
  CHECK(apps::StepShares{.links = 0.2, .order = 0.3, .memory = 0.1}.limit() == "order");
  CHECK(apps::StepShares{.links = 0.2, .order = 0.1, .memory = 0.3}.limit() == "memory");
  CHECK(apps::StepShares{.links = 0.2, .order = 0.1, .memory = 0.1}.limit() == "links");
}

TEST_CASE("a stacked bar is as long as its parts together") {
  const std::string text =
      apps::svg({.title = "",
                 .about = "",
                 .series = {"a", "b"},
                 .groups = {{"one", {{.value = 4, .note = "4", .series = 0, .parts = {1, 3}}}}}});
  check_has(text, {R"(x="400.0" y="100" width="97.5")", R"(x="497.5" y="100" width="292.5")"});
}

TEST_CASE("a plot's text may be arbitrary, and its bars are as long as their values") {
  const std::string text =
      apps::svg({.title = "a < b & \"c\"",
                 .about = "",
                 .series = {},
                 .groups = {{"one", {{1, "1", 0}}}, {"two", {{2, "2", 0}}}, {"none", {{0, "–", 0}}}}});
  check_has(text, {"a &lt; b &amp; &quot;c&quot;", R"(width="195.0")", R"(width="390.0")", R"(width="0.0")"});
}

TEST_CASE("if nothing fits, ranvier-plan names the nearest candidate and its lack of memory") {
  PlanTools tools = invented_tools();
  tools.read_profile = [](const std::string&) {
    auto profile = plan_profile(true);
    profile.device_memory = (std::size_t{1} << 30) + (200 << 10);  // without the driver's memory
    return profile;
  };
  const PlanResult result = plan_small_job("--collectives plans", tools);
  CHECK(result.status == 1);
  check_has(result.text, {"nothing fits", "closest: ", "recompute auto"});  // out of all possible changes
  check_has(result.text, {"200.0 KiB available", "memory: not enough on the device"});
}

TEST_CASE("without --profile ranvier-plan uses the measured profile of this host") {
  const TemporaryFolder folder;
  const apps::ProfileSearchPath places{.named = "", .folder = folder.path(), .host = "here"};
  const auto found = [&](const Flags& words) {
    PlanOptions options = parse(words);
    const std::string name = add_found_profile(options, places);
    CHECK((name.empty() || options.profiles == std::vector<std::string>{name}));
    return name;
  };
  check_usage_error({"--profile is missing"}, [&] { static_cast<void>(found("--world 4 --batch-size 8")); });
  const std::string cpu = folder.write("here-cpu-2-threads.json", "{}").string();
  const std::string gpu = folder.write("here-cuda.json", "{}").string();
  CHECK(found("--world 4") == cpu);
  CHECK(found("--world 4 --threads 2") == cpu);
  CHECK(found("--world 4 --device cuda") == gpu);
  CHECK(found("--world 4 --profile test-cpu").empty());
  const auto none = printed_error_of([&] { static_cast<void>(found("--world 4 --profile none")); });
  CHECK(says(none, "--profile none: ranvier-plan needs a profile"));
  CHECK_THROWS_AS(static_cast<void>(found("--world 4 --threads 3")), Error);
}

TEST_CASE("ranvier-plan refuses unknown flags, and names missing ones") {
  refused_plan("--profile test-cpu --batch-size 8", "--world is missing");
  refused_plan("--profile test-cpu --world 4", "--batch-size is missing");
  refused_plan(small_job("--profiel x"), "did you mean --profile?");
  refused_plan(small_job("--micro-batch-size 2"), "did you mean --microbatch-size?");
  refused_plan(small_job("--num-layers 2"), "did you mean --layers?");
  refused_plan(small_job("--g-inter 3"), "--g-inter 3 does not divide the number of ranks, 4");
  refused_plan(small_job("--slow-node 2:2"), "2 nodes of 2 ranks; use a node from 0 to 1");
  refused_plan(small_job("--slow-node 2"), "such as 3:1.5");
  refused_plan(small_job("--slow-node 1:0.5"), "1 or more");
  refused_plan(small_job("--bandwidth-times 0"), "factors above 0");
  refused_plan(small_job("--jitter 0"), "above 0, such as 0.1");
  refused_plan(small_job("--no-overlap"), "profile test-cpu is for CPUs; remove --no-overlap");
  refused_plan(small_job("--threads 2"), "measured with 1 thread; remove --threads");
  refused_plan(small_job("--device cuda"), "remove --device");
  refused_plan(small_job("--chunks-per-rank 2 --g-inter 1"), "remove --chunks-per-rank");
  refused_plan(small_job("--chunks-per-rank 2 --layers-per-stage 2,2,2"), "not a multiple of --chunks-per-rank 2");
  refused_plan(small_job("--exhaustive"), "--exhaustive cannot be combined with --simulations");
  refused_plan(small_job("--scale 2,4"), "--scale 2,4 cannot be combined with --world");
  const Flags scale = "--profile test-cpu --batch-size 8 --scale";
  const auto scaled = [&](const Flags& more) { return join(scale, more); };
  refused_plan(scaled("4,2"), "increasing numbers of ranks");
  refused_plan(scaled("2,4 --write-config best.conf"), "cannot be combined with --write-config");
  refused_plan(scaled("2,4 --write-trace trace.json"), "cannot be combined with --write-trace");
  refused_plan(scaled("2,4 --memory-times 2"), "several scenarios");
  refused_plan("--profile no-such-machine --world 4 --batch-size 8", "no-such-machine");
}

// Output of ranvier-plan next to its tables: the time of every rank, unsimulated candidates, and reasons why nothing
// runs.
#include "apps/plan/plan_report.hpp"
#include "apps/plan/plan_run.hpp"
#include "runtime/base/error.hpp"
#include "tests/apps/small_plan.hpp"

using namespace ranvier;
using namespace ranvier::tests;
using apps::PlanResult;
using apps::PlanTools;
using apps::run_plan;

TEST_CASE("if no candidate can run, ranvier-plan prints the reason instead of flags that would make it fit") {
  const Flags one = "--g-inter 1 --shard zero1 --group-size 3";
  refused_plan(small_job(one), "candidates can run: --group-size 3 must divide --g-data 4");
  PlanTools tools = invented_tools();
  tools.read_profile = [](const std::string& name) {
    auto profile = plan_profile(false);
    if (name == "test-lonely") profile.links = {};
    if (name == "test-little") profile.host_memory = 1 << 10;
    profile.name = name;
    return profile;
  };
  const auto run = [&](const std::vector<std::string>& profiles, const Flags& more = {}) {
    Flags words = small_job("--shard zero1 --microbatch-size 2");
    words.erase(std::find(words.begin(), words.end(), "--profile"),
                std::find(words.begin(), words.end(), "test-cpu") + 1);
    for (const std::string& profile : profiles) words.add("--profile " + profile);
    return run_plan(parse(join(words, more)), tools);
  };
  const std::vector<std::vector<std::string>> lonely{{"test-lonely"}, {"test-cpu", "test-lonely"}};
  for (const auto& profiles : lonely) {
    check_usage_error(
        {"--profile test-lonely has no rates of links inside a node, but 4 ranks are on 2 nodes of 2"},
        [&] { static_cast<void>(run(profiles)); });
  }
  // A case that fails next to others has its own line.
  const PlanResult cases = run({"test-cpu", "test-little"}, "--dead-ranks 1 --g-inter 1 --group-size 4");
  CHECK(cases.status == 0);
  check_has(cases.text, {"test-little           nothing fits: a node's memory is too small: ",
                         "1 dead, 2 ranks left  none of ", "--group-size 4 must divide --g-data 2"});
  const std::string impossible = run({"test-cpu"}, "--dead-ranks 1 --g-inter 4").text;
  check_has(impossible, {"--g-inter 4 does not divide the number of ranks, 2"});
  const auto json = boost::json::parse(run({"test-cpu", "test-little"}, {"--json"}).text);
  const auto& why = json.at("what_if").as_array().at(1).at("why_none").as_string();
  CHECK(why.starts_with("nothing fits: a node's memory"));
}

TEST_CASE("ranvier-plan shows the time of the best one's ranks, and writes a trace of each case") {
  const TemporaryFolder folder;
  PlanTools tools = invented_tools();
  tools.predict = actors::predict;
  const std::string path = folder.path() / "trace.json";
  const Flags words = small_job(
      "--g-inter 2 --shard zero1 --microbatch-size 2 --recompute off --all-gather ring --reduce-scatter ring "
      "--all-reduce ring --write-trace " +
      path + " --slow-node 1:3");
  const PlanResult result = run_plan(parse(words), tools);
  check_has(result.text, {"\ntime per step of one rank per stage", "written: " + path});
  std::array<double, 2> ends{};
  for (std::size_t n = 0; n < ends.size(); ++n) {
    const std::string file = n == 0 ? path : std::string(folder.path() / "trace.2.json");
    CAPTURE(file);
    const auto json = boost::json::parse(read_file(file));
    std::set<std::int64_t> ranks;
    for (const auto& event : json.at("traceEvents").as_array()) {
      if (event.at("ph") != "X") continue;
      if (event.at("name") == "forward 0") ranks.insert(event.at("pid").as_int64());
      ends.at(n) = std::max(ends.at(n), event.at("ts").to_number<double>());
    }
    CHECK(ranks.size() == 4);
  }
  CHECK(ends[1] > 1.5 * ends[0]);  // a node is three times as slow
  const auto stages = boost::json::parse(run_plan(parse(join(words, "--json --overwrite")), tools).text)
                          .at("best")
                          .as_array()
                          .at(0)
                          .at("stages")
                          .as_array();
  REQUIRE(stages.size() == 2);
  CHECK(stages.at(1).at("forward_seconds").as_double() > 0);
  CHECK(stages.at(1).at("busy").as_double() < 1);
}

TEST_CASE("without simulations a plan has the same memory and the same bounds") {
  PlanTools tools = invented_tools();
  tools.predict = actors::predict;
  const Flags words = small_job("--g-inter 2 --shard zero1 --microbatch-size 2 --recompute off --best 100 --json");
  auto without = words;
  const auto simulations = std::find(without.begin(), without.end(), "--simulations");
  without.erase(simulations, simulations + 2);
  without.emplace_back("--no-simulation");
  const auto simulated = boost::json::parse(run_plan(parse(words), tools).text);
  tools.predict = nullptr;  // not called
  const auto planned = boost::json::parse(run_plan(parse(without), tools).text);
  CHECK(planned.at("simulated").as_int64() == 0);
  const auto candidates_of = [](const boost::json::value& report) {
    std::vector<boost::json::value> candidates;
    for (const auto& row : report.at("best").as_array()) {
      candidates.push_back(row);
      if (const auto* others = row.as_object().if_contains("alternatives"))
        candidates.insert(candidates.end(), others->as_array().begin(), others->as_array().end());
    }
    return candidates;
  };
  const auto all = candidates_of(planned), all_simulated = candidates_of(simulated);
  REQUIRE(all.size() == all_simulated.size());
  for (const auto& ranked : all_simulated) {
    const auto same = std::find_if(
        all.begin(), all.end(), [&](const auto& each) { return each.at("candidate") == ranked.at("candidate"); });
    REQUIRE(same != all.end());
    for (const char* const key : {"device_bytes", "device_bytes_of_all", "host_bytes", "file_bytes"}) {
      CAPTURE(key);
      CHECK(same->at(key) == ranked.at(key));
    }
    CHECK(same->at("step_seconds").as_double() >= ranked.at("bound_seconds").as_double());
    CHECK(same->at("bubble").is_null());
    CHECK(same->at("file_bytes_read").is_null());
    CHECK(ranked.at("bubble").is_double());
    const auto of_a_second = [](const auto& each) {
      return each.at("mfu").as_double() * each.at("step_seconds").as_double();
    };
    CHECK(of_a_second(ranked) > 0);
    CHECK(of_a_second(*same) == doctest::Approx(of_a_second(ranked)));
  }
  const auto& rows = planned.at("best").as_array();
  CHECK(std::is_sorted(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return a.at("step_seconds").as_double() < b.at("step_seconds").as_double();
  }));
  for (const char* more : {"--simulations 8", "--memory-times 2", "--exhaustive"}) {
    const Flags flags = join(more, "--no-simulation --world 4 --batch-size 8 --profile test-cpu");
    CHECK(says(printed_error_of([&] { static_cast<void>(parse(flags)); }), "cannot be combined with"));
  }
}

TEST_CASE("a config file plans for a device that this build may not have") {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "best.conf";
  std::ofstream(path) << "g-inter = 2\ndevice = \"cuda\"  # for ranvier-train\n";
  const auto device_of = [&](const Flags& more) {
    std::vector<std::string> devices;
    for (const apps::GivenFlag& flag : parse(join(small_job(more), "--config " + path)).train)
      if (flag.name == "device") devices.push_back(flag.value);
    return devices;
  };
  CHECK(device_of({}) == std::vector<std::string>{"cuda"});
  CHECK(device_of("--device cpu") == std::vector<std::string>{"cpu"});
}

TEST_CASE("for many stages a plan shows the average, the busiest and the idlest one") {
  apps::Ranked ranked;
  for (int s = 1; s <= 20; ++s)
    ranked.prediction.stages.push_back(
        {.forward_seconds = s * 1e-3, .backward_seconds = 0.02, .step_seconds = 0.05});
  const std::string text = apps::stages_table(ranked);
  CHECK(std::count(text.begin(), text.end(), '\n') == 6);
  check_has(text, {"average       10.5 ms       20.0 ms             –", "19, busiest       20.0 ms       20.0 ms",
                   "0, idlest        1.0 ms       20.0 ms", "29.0 ms\n"});  // idle time of the idlest
  ranked.prediction.stages.resize(16);
  const std::string all = apps::stages_table(ranked);
  CHECK(std::count(all.begin(), all.end(), '\n') == 19);
  ranked.prediction.stages.clear();
  CHECK(apps::stages_table(ranked).empty());
}

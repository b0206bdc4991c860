#include "apps/plan/start_plan.hpp"

#include "runtime/base/error.hpp"
#include "tests/apps/plan_profiles.hpp"
#include "tests/apps/train_flags.hpp"

using namespace ranvier;
using namespace ranvier::tests;
using apps::GivenFlag;
using apps::plan_start;
using apps::PlanTools;
using apps::StartPlan;

namespace {

constexpr std::size_t plenty = std::size_t{1} << 36;

struct Here {
  apps::CurrentRanks ranks;
  apps::JobCapacity capacity{.device_bytes = {}, .host_bytes = plenty, .disk_bytes = plenty, .save_bytes = {}};
};

Here here_of(std::vector<int> nodes) { return {{std::move(nodes), 1}}; }

std::vector<GivenFlag> job_with(const Flags& more) {
  std::vector<GivenFlag> flags = given_flags(
      "--layers 4 --hidden 64 --heads 2 --vocab-size 256 --sequence-length 32 --data text.txt --plan auto "
      "--profile a100-40g-p4d");  // any name: the tools have their own
  for (GivenFlag& flag : given_flags(more)) {
    std::erase_if(flags, [&](const GivenFlag& each) { return each.name == flag.name; });
    flags.push_back(std::move(flag));
  }
  return flags;
}

PlanTools tools_of(const runtime::MachineProfile& profile) {
  return {.read_profile = [profile](const std::string&) { return profile; }};
}

StartPlan plan(const std::vector<GivenFlag>& given, const Here& here,
               const runtime::MachineProfile& profile = plan_profile(false)) {
  return plan_start(given, here.ranks, here.capacity, tools_of(profile), {});
}

/// Options of the job's ranks: the given flags, and the plan unless it is null.
apps::TrainOptions as_run(const std::vector<GivenFlag>& given, const StartPlan* plan, int ranks) {
  Flags flags;
  for (const GivenFlag& flag : given) flags.push_back(fmt::format("--{}={}", flag.name, flag.value));
  return parse_flags("ranvier-train", flags, [&](int argc, const char* const* argv) {
    return apps::parse_train_options(argc, argv, ranks, {},
                                     plan != nullptr ? plan->flags : std::vector<GivenFlag>());
  });
}

bool changes(const StartPlan& plan, std::string_view flag) { return value_of(plan.flags, flag) != nullptr; }

}  // namespace

TEST_CASE("a run that plans itself has a grid of its ranks, and prints the flags that repeat it") {
  const std::vector<std::vector<int>> layouts{{0, 0, 0, 3}, {0}, {0, 1}, {0, 0}, {0, 0, 2, 2}};
  for (int n = 0; n < effort(3, 5, 2); ++n) {
    const std::vector<int>& nodes = layouts[static_cast<std::size_t>(n)];
    const auto ranks = static_cast<int>(nodes.size());
    CAPTURE(ranks);
    const auto given = job_with("--recompute off");
    const StartPlan chosen = plan(given, here_of(nodes));
    const apps::TrainOptions options = as_run(given, &chosen, ranks);
    CHECK(options.trainer.grid.ranks() == ranks);
    CHECK(options.trainer.batch_size == (ranks == 1 || ranks == 2 || ranks == 4 ? 16 : 18));
    check_has(chosen.text, {" per step, ", "predicted for test-cpu"});
    // With the printed flags only.
    std::vector<GivenFlag> by_hand = given;
    std::erase_if(by_hand, [](const GivenFlag& flag) { return flag.name == "plan" || flag.name == "profile"; });
    for (const GivenFlag& flag : chosen.flags) {
      check_has(chosen.text, {fmt::format("--{} {}", flag.name, flag.value)});
      by_hand.push_back(flag);
    }
    const apps::TrainOptions repeated = as_run(by_hand, nullptr, ranks);
    CHECK(repeated.notes.empty());  // no chosen flag is without effect
    auto a = resolved(repeated), b = resolved(options);
    for (auto* all : {&a, &b})
      std::erase_if(*all, [](const auto& option) { return option.name == "plan" || option.name == "profile"; });
    CHECK(apps::hash_of(a) == apps::hash_of(b));
    for (const GivenFlag& flag : chosen.flags) CHECK(options.is_given(flag.name));
  }
}

TEST_CASE("given flags stay, and the same ranks choose the same plan") {
  const auto given = job_with(
      "--g-inter 2 --microbatch-size 2 --batch-size 12 --shard zero2 --recompute 1 --policy gpipe "
      "--learning-rate 0.00123456 --overwrite on --precision fp32");
  const StartPlan chosen = plan(given, here_of({0, 0, 1, 1}));
  for (const GivenFlag& flag : given) {
    CAPTURE(flag.name);
    CHECK(!changes(chosen, flag.name));
  }
  const apps::TrainOptions options = as_run(given, &chosen, 4);
  check_values(options,
               "--g-inter 2 --g-data 2 --microbatch-size 2 --batch-size 12 --shard zero2 --recompute 1 "
               "--learning-rate 0.00123456 --overwrite on");
  CHECK(plan(given, here_of({0, 0, 1, 1})).candidate == chosen.candidate);
}

TEST_CASE("a run with several model chunks per rank plans itself around them") {
  const auto given = job_with("--chunks-per-rank 2 --recompute off --policy message-driven");
  const StartPlan chosen = plan(given, here_of({0, 0, 0, 0}));
  CHECK(!changes(chosen, "chunks-per-rank"));
  const apps::TrainOptions options = as_run(given, &chosen, 4);
  check_values(options, "--chunks-per-rank 2 --g-inter 2");  // 6 layers are not enough for four
}

TEST_CASE("a run that plans itself fits the available memory, or reports what is missing") {
  const auto given = job_with("--batch-size 8 --policy 1f1b --recompute off --microbatch-size 1");
  const runtime::MachineProfile profile = plan_profile(false);
  const apps::Planner planner(given, profile, apps::CurrentRanks{{0, 0, 0, 0}, 1});
  const auto needs = [&](const StartPlan& chosen) {
    actors::TrainerOptions trainer = as_run(given, &chosen, 4).trainer;
    trainer.node_of = {0, 0, 0, 0};
    trainer.threads = 1;
    const apps::StagePlans plans = planner.plans_of(trainer);
    std::vector<const actors::RankPlan*> stages;
    for (const std::size_t stage : plans.of_stage) stages.push_back(&plans.distinct[stage]);
    return apps::memory_needs(stages, trainer, true);
  };
  const apps::MemoryNeeds usual = needs(plan(given, here_of({0, 0, 0, 0})));
  Here little = here_of({0, 0, 0, 0});
  little.capacity.device_bytes = usual.device - 1;
  CHECK(needs(plan(given, little)).device < usual.device);
  little.capacity.device_bytes = {};
  little.capacity.host_bytes = usual.host - 1;
  CHECK(needs(plan(given, little)).host < usual.host);
  little.capacity.host_bytes = 1 << 20;
  const auto none = printed_error_of([&] { static_cast<void>(plan(given, little)); });
  CHECK(none.code() == ErrorCode::memory);
  check_has(none.what(), {"nothing fits 4 ranks: a node's memory", "use more ranks, --precision bf16, "});
}

TEST_CASE("directories for states are used if chosen, and omitted otherwise") {
  const TemporaryFolder folder;
  const std::string disk = folder.path() / "disk";
  const auto given =
      job_with("--nvme " + disk + " --batch-size 8 --policy 1f1b --microbatch-size 1 --recompute off");
  const StartPlan roomy = plan(given, here_of({0, 0}));
  CHECK(as_run(given, &roomy, 2).trainer.tiers.files.directories.empty());
  check_has(roomy.text, {"and no --nvme"});
  auto all = given;
  all.push_back({"offload", "infinity-nvme"});
  const StartPlan on_disk = plan(all, here_of({0, 0}));
  CHECK_FALSE(has(on_disk.text, "--nvme"));
  CHECK(as_run(all, &on_disk, 2).trainer.tiers.files.directories.size() == 1);
}

TEST_CASE("simulated ranks are planned by the profile") {
  const auto given =
      job_with("--world 8 --node-size 4 --dry-run on --policy 1f1b --recompute off --microbatch-size 2");
  const StartPlan chosen = plan(given, here_of({0}));
  CHECK(as_run(given, &chosen, 1).trainer.grid.ranks() == 8);
}

TEST_CASE("without --profile a run plans itself by the measurement for ranks like its own, and prints that") {
  const TemporaryFolder folder;
  const std::string file = folder.write("measured.json", "{}").string();
  apps::ProfileSubject asked;
  PlanTools tools = tools_of(plan_profile(false));
  tools.find_profile = [&](const apps::ProfileSubject& subject) {
    asked = subject;
    return std::optional<std::string>(file);
  };
  auto given = job_with("--microbatch-size 2 --policy 1f1b --offload none --recompute off");
  const StartPlan named = plan(given, here_of({0, 0}));
  std::erase_if(given, [](const GivenFlag& flag) { return flag.name == "profile"; });
  Here here = here_of({0, 0});
  here.ranks.threads = 3;
  const StartPlan found = plan_start(given, here.ranks, here.capacity, tools, {});
  CHECK(asked.threads == 3);
  CHECK_FALSE(asked.gpu);
  check_has(found.text, {"\nprofile: " + file});
  check_lacks(named.text, {"\nprofile: "});
  given.push_back({"threads", "1"});
  static_cast<void>(plan_start(given, here.ranks, here.capacity, tools, {}));
  CHECK(asked.threads == 1);
}

TEST_CASE("a run that cannot plan itself prints the reason, and how to create a profile") {
  const auto refused = [](const std::vector<GivenFlag>& given, std::string_view message,
                          const runtime::MachineProfile& profile = plan_profile(false)) {
    CAPTURE(message);
    const auto error = printed_error_of([&] { static_cast<void>(plan(given, here_of({0, 0, 2}), profile)); });
    CHECK(error.code() == ErrorCode::usage);
    CHECK_MESSAGE(says(error, message), error.what());
  };
  auto without = job_with({});
  std::erase_if(without, [](const GivenFlag& flag) { return flag.name == "profile"; });
  refused(without, "--plan auto: no profile of these machines; ");
  refused(without, "mpirun -n 3 ranvier-bench profile");
  refused(job_with("--profile none"), "no profile of these machines (--profile none)");
  refused(job_with("--profile not-there.json"), "--profile is neither a file");
  refused(job_with("--profile not-there.json"), "ranvier-bench profile --write-profile not-there.json");
  refused(job_with({}), "is for GPUs, but --device is cpu", plan_profile(true));
  refused(job_with("--eval-only on"), "--eval-only; remove --plan");
  runtime::MachineProfile profile = plan_profile(false);
  profile.links.inter_node = {};
  refused(job_with({}), "has no rates of links between nodes", profile);
  refused(job_with("--world 8 --node-size 4"), "has no rates of links between nodes, but 8 ranks are on", profile);
  profile.links.intra_node = {};
  refused(job_with({}), "has no rates of links inside a node", profile);
  refused(job_with("--g-inter 2"), "--g-inter 2 does not divide");
  refused(job_with("--batch-size 8 --layers 2"), "no grid of");
  refused(job_with("--shard zero2 --optimizer-step host"), "none of");
}

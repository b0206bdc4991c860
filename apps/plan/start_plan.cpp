#include "apps/plan/start_plan.hpp"

#include "apps/plan/plan_report.hpp"
#include "apps/plan/scenarios.hpp"
#include "apps/program/agreement.hpp"
#include "apps/program/device_flag.hpp"
#include "runtime/base/arithmetic.hpp"
#include "runtime/device/cuda_build.hpp"
#include "runtime/host/cores.hpp"

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value_to.hpp>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <map>
#include <utility>

namespace ranvier::apps {

using runtime::MachineProfile;
using runtime::MpiSession;

namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr std::size_t max_simulations = 64;
constexpr int min_batch_size = 16;  // default of --batch-size

std::string how_to_measure(std::size_t ranks) {
  return fmt::format("measure the idle machines with mpirun -n {} ranvier-bench profile", ranks);
}

/// Name or path of --profile, or of the profile found for these ranks.
std::string profile_name(const std::vector<GivenFlag>& given, const CurrentRanks& here, const PlanTools& tools) {
  const std::size_t ranks = here.nodes.size();
  const std::string* named = value_of(given, "profile");
  std::optional<std::string> name;
  if (named != nullptr) {
    if (*named != no_profile) name = *named;
  } else if (tools.find_profile) {
    name = tools.find_profile(subject_of(given, here.threads));
  }
  if (!name)
    reject("--plan auto: no profile of these machines{}; {}", named != nullptr ? " (--profile none)" : "",
           how_to_measure(ranks));
  const auto shipped = runtime::shipped_profiles();
  if (std::ranges::find(shipped, *name) == shipped.end() && !fs::exists(*name))
    reject("--profile is neither a file nor a shipped profile ({}): {}; {} --write-profile {}",
           fmt::join(shipped, ", "), *name, how_to_measure(ranks), *name);
  return *name;
}

/// Refuses a profile of another kind of device, or without the links of this job.
void check_profile(const MachineProfile& profile, const std::string& path, const std::vector<GivenFlag>& given,
                   const CurrentRanks& here) {
  const std::string* device = value_of(given, "device");
  if (subject_of(given, here.threads).gpu != profile.gpu)
    reject("--profile {} is for {}, but --device is {}; use {}a profile of these machines", path,
           profile.gpu ? "GPUs" : "CPUs", device == nullptr ? "cpu" : *device,
           profile.gpu && runtime::with_cuda ? "--device cuda, or " : "");
  std::map<int, int> ranks_of;
  bool shared = false;
  for (const int node : here.nodes) shared = ++ranks_of[node] > 1 || shared;
  const auto require = [&](const runtime::Link& link, const char* where) {
    if (link.measured()) return;
    reject("--profile {} has no rates of links {}, which this job uses; {}", path, where,
           how_to_measure(here.nodes.size()));
  };
  if (value_of(given, "world") != nullptr || value_of(given, "node-size") != nullptr) return;  // checked later
  if (shared) require(profile.links.intra_node, "inside a node");
  if (ranks_of.size() > 1) require(profile.links.inter_node, "between nodes");
}

/// Flags of the best candidate whose values are neither given nor the default.
std::vector<GivenFlag> changes_of(const std::vector<GivenFlag>& given, std::vector<GivenFlag> chosen) {
  std::erase_if(chosen, [&](const GivenFlag& flag) {
    const std::string* before = value_of(given, flag.name);
    return traits_of(flag.name).plan == PlanRole::machine ||
           (before != nullptr ? *before == flag.value : is_default(flag));
  });
  return chosen;
}

[[noreturn]] void refuse(const Ranking& ranking, const ReportContext& context) {
  const std::string remedies = memory_remedy(context.precision);
  if (ranking.closest)
    fail(ErrorCode::memory, "--plan auto: nothing fits {} ranks: {} (closest of {} candidates: {}); {}",
         context.world, ranking.closest->lacks, ranking.candidates, ranking.closest->candidate.text(), remedies);
  if (const auto why = none_runs(ranking))
    reject("--plan auto: {}; use other values or fewer flags, or remove --plan", *why);
  fail(ErrorCode::memory, "--plan auto: none of {} simulated candidates fits the memory of {} ranks; {}",
       ranking.candidates, context.world, remedies);
}

std::string lines_of(const Ranking& ranking, const ReportContext& context, const std::vector<GivenFlag>& changes,
                     double seconds) {
  const Ranked& best = ranking.best.front();
  std::vector<std::string> flags;
  for (const auto& [name, value] : changes)
    flags.push_back(value.empty() ? "and no --" + name : fmt::format("--{} {}", name, value));
  if (flags.empty()) flags.emplace_back("as given");
  return fmt::format(
      "plan: {}: {} predicted for {} ({} candidates, {} simulated, {:.1f} s)\nequivalent flags: {}\n",
      best.candidate.text(), prediction_text(best, context), context.profile->name, ranking.candidates,
      ranking.search.simulated, seconds, fmt::join(flags, " "));
}

}  // namespace

void fit_to(MachineProfile& profile, const JobCapacity& capacity) {
  // Without a budget, the memory of a CPU's node is the limit.
  if (!profile.gpu || capacity.device_bytes)
    profile.device_memory = capacity.device_bytes.value_or(0) + (profile.gpu ? runtime::cuda_reserve_bytes : 0);
  profile.host_memory = capacity.host_bytes.value_or(0);
  profile.disk = capacity.disk_bytes.value_or(0);
}

StartPlan plan_start(const std::vector<GivenFlag>& given, const CurrentRanks& here, const JobCapacity& capacity,
                     const PlanTools& tools, const JobBuilder& build) {
  const auto began = std::chrono::steady_clock::now();
  if (asked_options(given).options.data.eval_only)
    reject("--plan auto cannot be combined with --eval-only; remove --plan");
  const std::string name = profile_name(given, here, tools);
  MachineProfile profile = tools.read_profile(name);
  check_profile(profile, name, given, here);
  const bool imagined = value_of(given, "world") != nullptr;
  if (!imagined) fit_to(profile, capacity);
  // Unknown free space: if a plan uses the directories, the job checks them.
  if (!imagined && !capacity.disk_bytes && value_of(given, "nvme") != nullptr)
    profile.disk = std::numeric_limits<std::size_t>::max();
  const bool timed = profile.read_bytes_per_second > 0 && profile.write_bytes_per_second > 0;
  if (!imagined && !timed) profile.disk = 0;  // without file rates, traffic would cost nothing
  std::vector<GivenFlag> flags = given;
  if (value_of(given, "batch-size") == nullptr) {
    int ranks = static_cast<int>(here.nodes.size());
    if (imagined) static_cast<void>(whole(ranks, 1).read(*value_of(given, "world")));
    flags.push_back({"batch-size", std::to_string(runtime::round_up(min_batch_size, ranks))});
  }
  const Planner planner(std::move(flags), profile, imagined ? std::nullopt : std::optional(here), build);
  if (imagined || value_of(given, "node-size") != nullptr) check_links(planner);
  Ranking ranking = rank_candidates(
      planner, tools.predict, {.best = 1, .simulations = max_simulations, .threads = runtime::available_cores()},
      usual_prediction(planner.world()));
  const ReportContext context = report_context(planner, 0);
  if (ranking.best.empty()) refuse(ranking, context);
  const Ranked& best = ranking.best.front();
  StartPlan plan{.candidate = best.candidate, .flags = changes_of(given, best.config)};
  // ranvier-train refuses --nvme if no state is stored there.
  if (value_of(given, "nvme") != nullptr && !plan.candidate.may_have_files()) plan.flags.push_back({"nvme", ""});
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
  plan.text = lines_of(ranking, context, plan.flags, seconds.count());
  if (value_of(given, "profile") == nullptr) plan.text += fmt::format("profile: {}\n", name);
  if (!profile.gpu && !imagined && value_of(given, "threads") == nullptr && here.threads != profile.threads)
    plan.text += fmt::format(
        "note: --profile was measured with {} threads per rank, but this job has {}; measure a profile with this "
        "number of ranks\n",
        profile.threads, here.threads);
  return plan;
}

std::vector<GivenFlag> plan_start(MpiSession& session, const std::vector<GivenFlag>& given,
                                  const RunDefaults& defaults, const JobBuilder& build) {
  TrainOptions options = asked_options(given).options;
  const bool asked = options.run.plans && !options.run.info.any();
  if (session.smallest(asked ? 1 : 0) == 0) {
    on_all_ranks(session, [&] {
      if (asked)
        reject(
            "options differ between ranks: only some have --plan auto; use the same flags and the same --config on "
            "every rank");
    });
    return {};
  }
  options.ranks = session.ranks();
  options.run.save.clear();
  on_all_ranks(session, [&] {
    DeviceOptions& device = options.device;
    if (device.device == DeviceFlag::cuda)
      device.memory_bytes = device_budget(session, device.gpu, device.memory_bytes);
  });
  const JobCapacity capacity = capacity_of(session, options, {});
  const CurrentRanks here{session.nodes(), session.cores()};
  json::object chosen;
  on_rank_0(session, [&] {
    const PlanTools tools{.find_profile = [places = profile_search_path()](const ProfileSubject& subject) {
      return find_profile(places, subject);
    }};
    std::vector<GivenFlag> to_plan = given;
    if (value_of(given, "precision") == nullptr)
      to_plan.push_back({"precision", std::string(to_string(defaults.precision))});
    if (const auto recorded = defaults.recorded.find("batch-size");
        recorded != defaults.recorded.end() && value_of(given, "batch-size") == nullptr)
      to_plan.push_back({"batch-size", recorded->second});
    const StartPlan plan = plan_start(to_plan, here, capacity, tools, build);
    for (const GivenFlag& flag : plan.flags) chosen[flag.name] = flag.value;
    fmt::print("{}\n", plan.text);
    std::fflush(stdout);
  });
  const json::value of_rank_0 = json::parse(broadcast_text(session, json::serialize(chosen)));
  std::vector<GivenFlag> flags;
  for (const auto& [name, value] : of_rank_0.as_object())
    flags.push_back({std::string(name), json::value_to<std::string>(value)});
  return flags;
}

}  // namespace ranvier::apps

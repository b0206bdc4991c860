#include "apps/plan/start_plan.hpp"

#include "apps/plan/plan_report.hpp"
#include "runtime/base/error.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ranvier::apps {

namespace {

constexpr std::size_t max_lines = 5;
constexpr std::size_t max_layers = 2048;  // larger models are not planned repeatedly for advice

bool is_one_of(std::initializer_list<std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

/// Given flags of the job without those that save memory; values of others that a planner would search are stated.
std::vector<GivenFlag> flags_of(const TrainOptions& options) {
  std::set<std::string_view> fixed;
  for (const std::string& name : options.given) fixed.insert(traits_of(name).fixes);
  std::vector<GivenFlag> flags;
  for (const ResolvedOption& option : resolved(options)) {
    const bool is_searched = is_one_of(
        {"shard", "offload", "secondary-tier", "optimizer-budget", "microbatch-size", "recompute"}, option.name);
    const bool is_stated = is_one_of(
        {"g-inter", "g-data", "batch-size", "policy", "all-gather", "reduce-scatter", "all-reduce", "precision"},
        option.name);
    if (is_stated || (options.is_given(option.name) && (!is_searched || fixed.contains(option.name))))
      flags.push_back({option.name, option.value});
  }
  return flags;
}

runtime::MachineProfile machine_of(const TrainOptions& options, const JobCapacity& capacity) {
  runtime::MachineProfile machine;
  machine.name = "this job";
  machine.gpu = options.device.device == DeviceFlag::cuda;
  machine.links = options.trainer.links;
  fit_to(machine, capacity);
  return machine;
}

/// Flags to change for the candidate; none if the job has its values.
std::vector<std::string> changed_flags(const Candidate& candidate, const TrainOptions& options,
                                       const std::vector<GivenFlag>& values) {
  std::vector<std::string> flags;
  for (const GivenFlag& flag : candidate.flags())
    if (*value_of(values, flag.name) != flag.value) flags.push_back(fmt::format("--{} {}", flag.name, flag.value));
  // ranvier-train refuses --nvme if no state is stored there.
  if (options.is_given("nvme") && !candidate.may_have_files()) flags.emplace_back("and no --nvme");
  return flags;
}

}  // namespace

std::string memory_advice(const TrainOptions& options, const CurrentRanks& ranks, const JobCapacity& capacity,
                          const JobBuilder& build) {
  const bool saves_all = options.trainer.saved_activations == models::SavedActivations::all;
  const std::string rest =
      (saves_all ? "remove --saved-activations all, or " : "") + memory_remedy(options.trainer.precision.compute);
  try {
    const runtime::MachineProfile machine = machine_of(options, capacity);
    const Planner planner(flags_of(options), machine, ranks, build);
    if (planner.job().architecture.layers.size() > max_layers) return rest;
    SpaceOptions space = planner.space();
    space.apart = space.apart || capacity.device_bytes;  // --device-memory limits a CPU device like a GPU
    space.files = planner.is_given("nvme") && capacity.disk_bytes != std::size_t{0};
    actors::TrainerOptions trainer = options.trainer;
    trainer.node_of = ranks.nodes;
    space.given.try_emplace("group-size", std::to_string(actors::column_shape(trainer).group_size));
    std::vector<GivenFlag> values;
    for (const ResolvedOption& option : resolved(options)) values.push_back({option.name, option.value});
    std::vector<std::pair<std::vector<std::string>, Candidate>> changes;  // changed flags
    const bool has_budget = options.is_given("optimizer-budget");
    for (Candidate& candidate : make_space(space).candidates) {
      if (has_budget) candidate.optimizer_budget = "0";
      changes.emplace_back(changed_flags(candidate, options, values), candidate);
    }
    std::ranges::stable_sort(changes, [](const auto& a, const auto& b) { return a.first.size() < b.first.size(); });
    CandidateFilter filter(planner);
    std::string lines;
    std::size_t count = 0, fewest = 0;
    std::set<std::pair<std::size_t, std::size_t>> listed;  // needs: one candidate of each is enough
    for (const auto& [flags, candidate] : changes) {
      if (count == max_lines || (count > 0 && flags.size() > fewest)) break;
      auto trial = filter.plan(candidate);
      if (!trial) continue;
      const std::pair needed(trial->needs.device, trial->needs.host);
      std::string text = fmt::format("{}", fmt::join(flags, " "));
      const bool offloads = !candidate.offload.empty() && candidate.offload != options.offload;
      if (auto filled = offloads || has_budget ? planner.with_budget(candidate, *trial) : std::nullopt) {
        text = fmt::format("{}", fmt::join(changed_flags(filled->first, options, values), " "));
        trial = std::move(filled->second);
      }
      // A run reduces it only for device memory.
      if (const int prefetch = trial->trainer.prefetch;
          !options.shard.prefetch && prefetch != actors::TrainerOptions().prefetch)
        text += fmt::format("{}--prefetch {}", flags.empty() ? "" : " ", prefetch);
      if (text.empty() || !listed.insert(needed).second) continue;
      fewest = flags.size();
      ++count;
      lines += fmt::format("\n  {:<50} {} per rank on the device, {} of memory per node", text,
                           runtime::format_bytes(trial->needs.device), runtime::format_bytes(trial->needs.host));
    }
    if (count > 0)
      return fmt::format("{} make the job fit (planned):{}", count > 1 ? "any of these" : "these", lines);
    if (filter.closest) return closest_text(*filter.closest) + rest;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::usage) throw;  // these flags cannot be searched
  }
  return rest;
}

}  // namespace ranvier::apps

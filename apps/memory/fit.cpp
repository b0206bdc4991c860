#include "apps/memory/fit.hpp"

#include "apps/memory/job_plan.hpp"
#include "apps/memory/remedies.hpp"
#include "runtime/base/error.hpp"
#include "runtime/device/arena.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace ranvier::apps {

using actors::RankPlan;
using actors::TierKind;
using actors::TrainerOptions;
using runtime::format_bytes;
using runtime::MemorySpace;

MemoryNeeds memory_needs(std::span<const RankPlan* const> stages, const TrainerOptions& options,
                         bool device_is_host) {
  MemoryNeeds most;
  std::vector<std::size_t> host, disk;  // per rank, by stage
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const runtime::MemoryPlan& memory = stages[s]->memory;
    const std::size_t device = memory.bytes(MemorySpace::device);
    if (device > most.device) {
      most.device = device;
      most.stage = s;
    }
    host.push_back(memory.bytes(MemorySpace::pinned) + memory.bytes(MemorySpace::host) +
                   (device_is_host ? device : 0));
    disk.push_back(memory.bytes(MemorySpace::nvme));
  }
  std::map<int, std::pair<std::size_t, std::size_t>> nodes;  // host and disk
  for (int rank = 0; rank < options.grid.ranks(); ++rank) {
    const auto s = static_cast<std::size_t>(rank / options.grid.g_data);
    auto& node = nodes[options.node_of.empty() ? 0 : options.node_of.at(static_cast<std::size_t>(rank))];
    node.first += host[s];
    node.second += disk[s];
  }
  for (const auto& [node, bytes] : nodes) {
    most.host = std::max(most.host, bytes.first);
    most.disk = std::max(most.disk, bytes.second);
  }
  return most;
}

namespace {

MemoryNeeds memory_needs(std::span<const RankPlan> stages, const TrainerOptions& options,
                         const JobCapacity& capacity) {
  std::vector<const RankPlan*> all;
  for (const RankPlan& stage : stages) all.push_back(&stage);
  return apps::memory_needs(all, options, capacity.device_is_host);
}

constexpr std::size_t max_layers = 2048;  // larger models are not planned repeatedly for advice
constexpr const char* rather =
    "more ranks, more stages (--g-inter), states in files (--offload infinity-nvme --nvme DIR), tiles (--tile), or "
    "a smaller model";

/// Bytes on the disk of --save at the end: weights, and the share of state files that is on the same disk.
std::size_t saved_bytes(const MemoryNeeds& needs, const JobCapacity& capacity) {
  return capacity.saved_bytes +
         static_cast<std::size_t>(capacity.states_beside_save * static_cast<double>(needs.disk));
}

JobCapacity without_saving(JobCapacity capacity) {
  capacity.saved_bytes = 0;
  capacity.save_bytes.reset();
  return capacity;
}

bool fit(const MemoryNeeds& needs, const JobCapacity& capacity) {
  const auto within = [](std::size_t needed, std::optional<std::size_t> there) {
    return !there || needed <= *there;
  };
  return within(needs.device, capacity.device_bytes) && within(needs.host, capacity.host_bytes) &&
         within(needs.disk, capacity.disk_bytes) && within(saved_bytes(needs, capacity), capacity.save_bytes);
}

/// "gradients, 1.2 GiB": largest kind of device memory.
std::string largest_part(const RankPlan& stage) {
  std::size_t most = 0;
  runtime::MemoryKind largest = runtime::MemoryKind::parameters;
  for (int k = 0; k < runtime::memory_kinds; ++k) {
    const auto kind = static_cast<runtime::MemoryKind>(k);
    if (stage.memory.bytes(MemorySpace::device, kind) <= most) continue;
    most = stage.memory.bytes(MemorySpace::device, kind);
    largest = kind;
  }
  return fmt::format("{}, {}", to_string(largest), format_bytes(most));
}

/// Command-line text; a later flag replaces an earlier one of its name.
std::string flags_of(std::span<const Remedy> changes) {
  std::vector<Remedy::Flag> flags;
  for (const Remedy& change : changes) flags.insert(flags.end(), change.flags.begin(), change.flags.end());
  std::string text;
  for (auto flag = flags.begin(); flag != flags.end(); ++flag) {
    const auto same = [&](const Remedy::Flag& later) { return later.name == flag->name; };
    if (std::any_of(flag + 1, flags.end(), same)) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : " ", flag->name, flag->value);
  }
  return text;
}

/// Remedies that can be planned, except files: the machine may have no suitable disk.
std::vector<Remedy> changes_of(const TrainerOptions& options, bool part) {
  std::vector<Remedy> changes = remedies_of(options, part);
  std::erase_if(changes, [](const Remedy& remedy) { return !remedy.make || remedy.way == Remedy::Way::to_files; });
  return changes;
}

/// Plans the job with changed options. If memory is short, reduces --prefetch unless it is given.
class RemedyTrial {
 public:
  RemedyTrial(const models::Architecture& architecture, const models::SampleBytes& sample,
              const JobCapacity& capacity)
      : architecture_(&architecture), sample_(&sample), capacity_(&capacity) {}

  [[nodiscard]] bool trains_part() const {
    return architecture_->trained_parameters() < architecture_->parameters();
  }
  [[nodiscard]] std::optional<MemoryNeeds> needs(TrainerOptions options) const {
    try {
      const auto of = [&] {
        return memory_needs(plan_stages(*architecture_, *sample_, options), options, *capacity_);
      };
      MemoryNeeds needs = of();
      while (!fit(needs, *capacity_) && capacity_->may_change_prefetch && options.prefetch > 0) {
        --options.prefetch;
        needs = of();
      }
      return needs;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::usage) throw;
      return std::nullopt;  // incompatible flags
    }
  }

 private:
  const models::Architecture* architecture_;
  const models::SampleBytes* sample_;
  const JobCapacity* capacity_;
};

std::string advice(const TrainerOptions& options, const RemedyTrial& trial, const JobCapacity& capacity) {
  const auto line = [](const std::string& flags, const MemoryNeeds& needs) {
    return fmt::format("  {:<50} {} per rank on the device, {} of memory per node\n", flags,
                       format_bytes(needs.device), format_bytes(needs.host));
  };
  const std::vector<Remedy> changes = changes_of(options, trial.trains_part());
  std::string alone;
  for (const Remedy& change : changes) {
    TrainerOptions changed = options;
    change.make(changed);
    const auto needs = trial.needs(changed);
    if (needs && fit(*needs, capacity)) alone += line(flags_of(std::span(&change, 1)), *needs);
  }
  if (!alone.empty()) return "each of these makes the job fit (planned one by one):\n" + alone;
  // No single change is enough: accumulate changes that reduce memory.
  TrainerOptions changed = options;
  std::vector<Remedy> made;
  std::optional<MemoryNeeds> least = trial.needs(options);
  for (const Remedy& change : changes) {
    TrainerOptions next = changed;
    change.make(next);
    const auto needs = trial.needs(next);
    if (!needs || (least && needs->device >= least->device && needs->host >= least->host)) continue;
    least = needs;
    changed = next;
    made.push_back(change);
    if (fit(*least, capacity)) return "these together make the job fit (planned):\n" + line(flags_of(made), *least);
  }
  if (!least || made.empty()) return fmt::format("no tried flag reduces the memory; use {}\n", rather);
  return fmt::format(
      "with {} the job still does not fit ({} per rank on the device, {} of memory per node); use {}\n",
      flags_of(made), format_bytes(least->device), format_bytes(least->host), rather);
}

}  // namespace

FitResult verdict(const models::Architecture& architecture, const models::SampleBytes& sample,
                  const TrainerOptions& options, std::span<const RankPlan> stages, const JobCapacity& capacity) {
  const MemoryNeeds needs = memory_needs(stages, options, capacity);
  FitResult result{.fits = fit(needs, capacity), .text = {}};
  const auto line = [&](const char* where, std::size_t needed, std::optional<std::size_t> there,
                        const char* unknown) {
    const bool fits = !there || needed <= *there;
    result.text += fmt::format("  {:<32} {:>11}", where, format_bytes(needed));
    result.text += there ? fmt::format(" of {:>11}  {}\n", format_bytes(*there), fits ? "fits" : "does not fit")
                         : fmt::format("  {}\n", unknown);
  };
  result.text = result.fits ? "this job fits, as far as known:\n" : "this job does not fit:\n";
  line("device memory per rank", needs.device, capacity.device_bytes,
       capacity.device_is_host ? "(no --device-memory)" : "(available unknown; set --device-memory)");
  line(capacity.device_is_host ? "memory per node, with devices" : "memory per node", needs.host,
       capacity.host_bytes, "(available unknown)");
  if (needs.disk > 0) line("files per node", needs.disk, capacity.disk_bytes, "(available unknown)");
  if (capacity.saved_bytes > 0)
    line(
        saved_bytes(needs, capacity) > capacity.saved_bytes ? "weights of --save, with files" : "weights of --save",
        saved_bytes(needs, capacity), capacity.save_bytes, "(available unknown)");
  result.text +=
      fmt::format("largest on the device: {} (stage {})\n", largest_part(stages[needs.stage]), needs.stage);
  if (result.fits) return result;
  if (capacity.save_bytes && saved_bytes(needs, capacity) > *capacity.save_bytes)
    result.text += fmt::format("free {} more on the disk of --save, or use another disk\n",
                               format_bytes(saved_bytes(needs, capacity) - *capacity.save_bytes));
  const JobCapacity states = without_saving(capacity);  // no flag reduces the size of weights
  if (fit(needs, states)) return result;
  result.text += architecture.layers.size() <= max_layers
                     ? advice(options, RemedyTrial(architecture, sample, states), states)
                     : fmt::format("use {}\n", rather);
  return result;
}

}  // namespace ranvier::apps

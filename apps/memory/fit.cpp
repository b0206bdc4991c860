#include "apps/memory/fit.hpp"

#include "apps/files/output_files.hpp"
#include "apps/files/weight_saving.hpp"
#include "runtime/device/arena.hpp"
#include "runtime/device/memory_limit.hpp"
#include "runtime/files/atomic_file.hpp"

#include <fmt/format.h>

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <system_error>
#include <utility>
#include <vector>

namespace ranvier::apps {

using actors::RankPlan;
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

namespace fs = std::filesystem;

/// Nearest existing folder: a missing folder will be created on its disk.
fs::path folder_there(fs::path path) {
  std::error_code unknown;
  path = fs::absolute(path, unknown);
  while (path.has_relative_path() && !fs::is_directory(path, unknown)) path = path.parent_path();
  return path;
}

bool on_one_disk(const fs::path& a, const fs::path& b) {
  struct stat of_a{}, of_b{};
  return ::stat(folder_there(a).c_str(), &of_a) == 0 && ::stat(folder_there(b).c_str(), &of_b) == 0 &&
         of_a.st_dev == of_b.st_dev;
}

MemoryNeeds memory_needs(std::span<const RankPlan> stages, const TrainerOptions& options,
                         const JobCapacity& capacity) {
  std::vector<const RankPlan*> all;
  for (const RankPlan& stage : stages) all.push_back(&stage);
  return apps::memory_needs(all, options, capacity.device_is_host);
}

/// Bytes on the disk of --save at the end: weights, and the share of state files that is on the same disk.
std::size_t bytes_with_states(const MemoryNeeds& needs, const JobCapacity& capacity) {
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
         within(needs.disk, capacity.disk_bytes) && within(bytes_with_states(needs, capacity), capacity.save_bytes);
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

}  // namespace

FitResult verdict(const TrainerOptions& options, std::span<const RankPlan> stages, const JobCapacity& capacity) {
  const MemoryNeeds needs = memory_needs(stages, options, capacity);
  FitResult result{.fits = fit(needs, capacity), .states_fit = fit(needs, without_saving(capacity))};
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
    line(bytes_with_states(needs, capacity) > capacity.saved_bytes ? "weights of --save, with files"
                                                                   : "weights of --save",
         bytes_with_states(needs, capacity), capacity.save_bytes, "(available unknown)");
  result.text +=
      fmt::format("largest on the device: {} (stage {})\n", largest_part(stages[needs.stage]), needs.stage);
  if (capacity.save_bytes && bytes_with_states(needs, capacity) > *capacity.save_bytes)
    result.text += fmt::format("free {} more on the disk of --save, or use another disk\n",
                               format_bytes(bytes_with_states(needs, capacity) - *capacity.save_bytes));
  return result;
}

JobCapacity capacity_of(runtime::MpiSession& session, const TrainOptions& options, const Job& job) {
  const auto least = [&session](std::optional<std::size_t> bytes) -> std::optional<std::size_t> {
    constexpr long long unknown = std::numeric_limits<long long>::max();
    const auto known = static_cast<long long>(std::min(bytes.value_or(unknown), std::size_t{unknown}));
    const long long smallest = session.smallest(known);
    return smallest == unknown ? std::nullopt : std::optional(static_cast<std::size_t>(smallest));
  };
  const bool imagined = options.ranks != session.ranks();
  const std::string& save = options.run.save;
  const std::size_t to_save = save.empty() ? 0 : saved_bytes(options, job);
  const auto& directories = options.trainer.tiers.files.directories;
  std::optional<std::size_t> host, disk, weights;
  long long beside = 0;  // directories on the disk of --save
  if (!imagined) {
    host = runtime::memory_limit().bytes;
    for (const fs::path& directory : directories)
      disk = disk.value_or(0) + runtime::free_bytes_beside(directory / "states");
    if (session.rank() == 0 && to_save > 0) {
      const fs::path path = weights_path(save);
      weights = runtime::free_bytes_beside(folder_there(path) / path.filename());
      beside = std::ranges::count_if(directories,
                                     [&](const fs::path& directory) { return on_one_disk(directory, path); });
    }
  }
  return {.device_bytes = least(options.device.memory_bytes),
          .host_bytes = least(host),
          .disk_bytes = least(disk),
          .save_bytes = least(weights),
          .saved_bytes = to_save,
          .states_beside_save = static_cast<double>(session.largest(beside)) /
                                static_cast<double>(std::max<std::size_t>(directories.size(), 1)),
          .device_is_host = options.device.device != DeviceFlag::cuda};
}

}  // namespace ranvier::apps

#include "apps/memory/fit.hpp"

#include "apps/files/output_files.hpp"
#include "apps/files/weight_saving.hpp"
#include "apps/program/agreement.hpp"
#include "runtime/device/arena.hpp"
#include "runtime/device/memory_limit.hpp"
#include "runtime/files/atomic_file.hpp"

#include <fmt/format.h>

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
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

/// One line of the fit check.
struct FitLine {
  const char* where;
  std::size_t needed;
  std::optional<std::size_t> there;
  const char* unknown = "(available unknown)";

  [[nodiscard]] bool fits() const { return !there || needed <= *there; }
};

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
  std::vector<const RankPlan*> all;
  for (const RankPlan& stage : stages) all.push_back(&stage);
  const MemoryNeeds needs = memory_needs(all, options, capacity.device_is_host);
  const auto fit = [](const std::vector<FitLine>& lines) { return std::ranges::all_of(lines, &FitLine::fits); };
  std::vector<FitLine> lines{
      {"device memory per rank", needs.device, capacity.device_bytes,
       capacity.device_is_host ? "(no --device-memory)" : "(available unknown; set --device-memory)"},
      {capacity.device_is_host ? "memory per node, with devices" : "memory per node", needs.host,
       capacity.host_bytes}};
  if (needs.disk > 0) lines.push_back({"files per node", needs.disk, capacity.disk_bytes});
  FitResult result{.states_fit = fit(lines)};
  // At the end, the disk of --save has the weights, and its share of the state files.
  const std::size_t at_save = capacity.saved_bytes + static_cast<std::size_t>(capacity.states_beside_save *
                                                                              static_cast<double>(needs.disk));
  if (capacity.saved_bytes > 0)
    lines.push_back({at_save > capacity.saved_bytes ? "weights of --save, with files" : "weights of --save",
                     at_save, capacity.save_bytes});
  result.fits = fit(lines);
  result.text = result.fits ? "this job fits, as far as known:\n" : "this job does not fit:\n";
  for (const FitLine& line : lines) {
    result.text += fmt::format("  {:<32} {:>11}", line.where, format_bytes(line.needed));
    result.text += line.there ? fmt::format(" of {:>11}  {}\n", format_bytes(*line.there),
                                            line.fits() ? "fits" : "does not fit")
                              : fmt::format("  {}\n", line.unknown);
  }
  result.text +=
      fmt::format("largest on the device: {} (stage {})\n", largest_part(stages[needs.stage]), needs.stage);
  if (capacity.save_bytes && at_save > *capacity.save_bytes)
    result.text += fmt::format("free {} more on the disk of --save, or use another disk\n",
                               format_bytes(at_save - *capacity.save_bytes));
  return result;
}

JobCapacity capacity_of(runtime::MpiSession& session, const TrainOptions& options, const Job& job) {
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
  return {.device_bytes = smallest_bytes(session, options.device.memory_bytes),
          .host_bytes = smallest_bytes(session, host),
          .disk_bytes = smallest_bytes(session, disk),
          .save_bytes = smallest_bytes(session, weights),
          .saved_bytes = to_save,
          .states_beside_save = static_cast<double>(session.largest(beside)) /
                                static_cast<double>(std::max<std::size_t>(directories.size(), 1)),
          .device_is_host = options.device.device != DeviceFlag::cuda};
}

}  // namespace ranvier::apps

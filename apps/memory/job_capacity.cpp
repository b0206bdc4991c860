#include "apps/memory/job_capacity.hpp"

#include "apps/files/output_files.hpp"
#include "apps/files/weight_saving.hpp"
#include "runtime/device/memory_limit.hpp"
#include "runtime/files/atomic_file.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <string>
#include <system_error>

namespace ranvier::apps {

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

}  // namespace

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
      beside = std::count_if(directories.begin(), directories.end(),
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
          .device_is_host = options.device.device != DeviceFlag::cuda,
          .may_change_prefetch = !options.shard.prefetch};
}

}  // namespace ranvier::apps

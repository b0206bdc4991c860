#include "runtime/device/memory_limit.hpp"

#include "runtime/base/error.hpp"
#include "runtime/device/arena.hpp"
#include "runtime/host/cores.hpp"

#include <algorithm>
#include <fstream>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string_view>

namespace ranvier::runtime {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kibibyte = 1024;

/// File names of one version of control groups.
struct GroupFiles {
  const char* limit;
  const char* usage;
  std::initializer_list<const char*> cached;  ///< keys of memory.stat
};
const GroupFiles version_1{
    "memory.limit_in_bytes", "memory.usage_in_bytes", {"total_inactive_file", "total_active_file"}};
const GroupFiles version_2{"memory.max", "memory.current", {"inactive_file", "active_file"}};

/// First number in a file; empty if the file is missing or contains "max".
std::optional<std::size_t> number_in(const fs::path& path) {
  std::ifstream file(path);
  std::size_t number = 0;
  if (!(file >> number)) return std::nullopt;
  return number;
}

/// Number after `key` in a file with a key and a number per line.
std::size_t number_after(const fs::path& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string word; file >> word; std::getline(file, word)) {
    std::size_t number = 0;
    if (word == key && file >> number) return number;
  }
  return 0;
}

MemoryLimit of_machine(const fs::path& root) {
  const fs::path info = root / "proc/meminfo";
  const std::size_t available = number_after(info, "MemAvailable:") * kibibyte;
  const std::size_t swap = number_after(info, "SwapFree:") * kibibyte;
  if (available == 0) return {std::numeric_limits<std::size_t>::max(), "the machine's memory is unknown"};
  return {available + swap,
          fmt::format("the machine has {}, of which {} are available{}",
                      format_bytes(number_after(info, "MemTotal:") * kibibyte), format_bytes(available),
                      swap > 0 ? fmt::format(", and {} of swap", format_bytes(swap)) : std::string())};
}

/// Limit of one group itself, if it has one.
std::optional<MemoryLimit> of_group(const fs::path& folder, const std::string& name, const GroupFiles& files) {
  const auto limit = number_in(folder / files.limit);
  if (!limit) return std::nullopt;
  std::size_t cached = 0;
  for (const char* key : files.cached) cached += number_after(folder / "memory.stat", key);
  const std::size_t usage = number_in(folder / files.usage).value_or(0);
  const std::size_t taken = usage - std::min(usage, cached);
  return MemoryLimit{*limit - std::min(*limit, taken),
                     fmt::format("the control group {} may have {} ({}), of which {} are in use", name,
                                 format_bytes(*limit), files.limit, format_bytes(taken))};
}

}  // namespace

MemoryLimit memory_limit(const fs::path& root) {
  MemoryLimit least = of_machine(root);
  for (const ControlGroup& group : control_groups("memory", root)) {
    const auto limit = of_group(group.folder, group.name, group.version == 1 ? version_1 : version_2);
    if (limit && limit->bytes < least.bytes) least = *limit;
  }
  return least;
}

void refuse_allocation(std::size_t bytes, std::size_t used, std::size_t budget) {
  fail(ErrorCode::memory,
       "device memory is exhausted: {} ({} bytes) requested, {} of the budget of {} in use; raise "
       "`device_memory`, or use flags that `dry_run` lists",
       format_bytes(bytes), bytes, format_bytes(used), format_bytes(budget));
}

std::size_t peak_resident_bytes() { return number_after("/proc/self/status", "VmHWM:") * kibibyte; }

}  // namespace ranvier::runtime

#include "runtime/host/cores.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <optional>
#include <thread>

namespace ranvier::runtime {

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

cpu_set_t affinity_mask() {
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) return mask;
  CPU_ZERO(&mask);  // more processors than the mask has bits
  const auto cores = std::min<std::size_t>(std::max(1u, std::thread::hardware_concurrency()), CPU_SETSIZE);
  for (std::size_t core = 0; core < cores; ++core) CPU_SET(core, &mask);
  return mask;
}

int core_quota(const std::filesystem::path& root) {
  double least = std::numeric_limits<int>::max();
  for (const ControlGroup& group : control_groups("cpu", root)) {
    double quota = 0, period = 0;
    if (group.version == 2) {
      std::ifstream file(group.folder / "cpu.max");  // "max 100000" without a limit
      if (!(file >> quota >> period)) continue;
    } else {
      std::ifstream quota_file(group.folder / "cpu.cfs_quota_us"), period_file(group.folder / "cpu.cfs_period_us");
      if (!(quota_file >> quota && period_file >> period)) continue;  // -1 without a limit
    }
    if (quota > 0 && period > 0) least = std::min(least, quota / period);
  }
  return std::max(1, static_cast<int>(least));
}

int available_cores() {
  const cpu_set_t mask = affinity_mask();
  return core_share({&mask, 1}, 0, core_quota());
}

int machine_cores() {
  return std::min(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())), core_quota());
}

int core_share(std::span<const cpu_set_t> masks, std::size_t process, int quota) {
  double share = 0;
  for (std::size_t core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &masks[process])) continue;
    share += 1.0 / static_cast<double>(std::count_if(masks.begin(), masks.end(), [core](const cpu_set_t& mask) {
               return CPU_ISSET(core, &mask);
             }));
  }
  constexpr double rounding = 1e-9;
  const auto cores = static_cast<int>(share + rounding);
  return std::max(1, std::min(cores, quota / static_cast<int>(masks.size())));
}

namespace fs = std::filesystem;

std::vector<ControlGroup> control_groups(std::string_view controller, const fs::path& root) {
  std::ifstream file(root / "proc/self/cgroup");
  std::optional<fs::path> path;
  fs::path mounted = root / "sys/fs/cgroup";
  int version = 2;
  for (std::string line; std::getline(file, line);) {  // NUMBER:CONTROLLERS:PATH
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = ',' + line.substr(first + 1, second - first - 1) + ',';
    if (controllers.find(fmt::format(",{},", controller)) != std::string::npos) {
      path = line.substr(second + 1);
      mounted /= controller;
      version = 1;
      break;
    }
    if (controllers == ",,") path = line.substr(second + 1);
  }
  std::vector<ControlGroup> groups;
  if (!path) return groups;
  // A container may see its own group as the top of the hierarchy, regardless of its path outside.
  for (fs::path name = path->relative_path();; name = name.parent_path()) {
    groups.push_back({name.empty() ? mounted : mounted / name, "/" + name.string(), version});
    if (name.empty()) return groups;
  }
}

}  // namespace ranvier::runtime

#include "runtime/host/control_group.hpp"

#include <fmt/core.h>

#include <fstream>
#include <optional>

namespace ranvier::runtime {

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

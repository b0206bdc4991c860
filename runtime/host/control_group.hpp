// Control groups (cgroups) of this process, from its own up to the machine's. Callable from any thread.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::runtime {

struct ControlGroup {
  std::filesystem::path folder;  ///< folder with its files
  std::string name;              ///< "/system.slice/job"
  int version = 2;               ///< version of control groups: 1 or 2
};

/// Groups of the hierarchy that limits `controller` ("memory", "cpu"). `root` contains /proc and /sys; empty if the
/// system has no control groups.
[[nodiscard]] std::vector<ControlGroup> control_groups(std::string_view controller,
                                                       const std::filesystem::path& root);

}  // namespace ranvier::runtime

// Name of this machine, and number of processor cores that a process may use: its affinity mask (mpirun, Slurm,
// taskset), limited by the CPU quota of its control groups (containers). Callable from any thread.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sched.h>

namespace ranvier::runtime {

/// Name of this machine; "localhost" if it is unknown.
[[nodiscard]] std::string host_name();

/// This process's affinity mask.
[[nodiscard]] cpu_set_t affinity_mask();

/// Cores that the control groups' quotas allow, rounded down, at least 1; INT_MAX without a quota. `root` as in
/// memory_limit().
[[nodiscard]] int core_quota(const std::filesystem::path& root = "/");

/// Cores that this process may use if no other process needs them, at least 1.
[[nodiscard]] int available_cores();

/// Cores of the machine or container, regardless of the affinity mask.
[[nodiscard]] int machine_cores();

/// Cores for process `process` of those with `masks` on one machine, at least 1: each core is divided by the processes
/// that may use it, and `quota` by all processes.
[[nodiscard]] int core_share(std::span<const cpu_set_t> masks, std::size_t process, int quota);

/// A control group (cgroup) that limits this process.
struct ControlGroup {
  std::filesystem::path folder;  ///< folder with its files
  std::string name;              ///< "/system.slice/job"
  int version = 2;               ///< version of control groups: 1 or 2
};

/// Groups of the hierarchy that limits `controller` ("memory", "cpu"), from the process's own up to the machine's.
/// `root` contains /proc and /sys; empty if the system has no control groups.
[[nodiscard]] std::vector<ControlGroup> control_groups(std::string_view controller,
                                                       const std::filesystem::path& root);

}  // namespace ranvier::runtime

// Measures a machine profile (runtime/machine/machine_profile.hpp) with the devices of the ranks. Loop thread only.
#pragma once

#include "apps/bench/bench_rank.hpp"
#include "runtime/device/cuda_build.hpp"
#include "runtime/machine/machine_profile.hpp"

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ranvier::apps {

struct ProfileRequest {
  std::string name;                                ///< name of the profile; empty: the device's name
  std::vector<std::filesystem::path> directories;  ///< one per disk; empty: files are not measured
  std::optional<runtime::CudaGpu> gpu;             ///< none: ranks compute on CPUs
  double seconds = 40;  ///< approximate duration, at least one repetition of each measurement
};

/// Collective; all ranks measure at the same time and return the same. `node_of`: node by rank. A single rank measures
/// no links. The README explains how each entry is measured.
[[nodiscard]] runtime::MachineProfile measure_profile(BenchRank& rank, std::span<const int> node_of,
                                                      const ProfileRequest& request);

}  // namespace ranvier::apps

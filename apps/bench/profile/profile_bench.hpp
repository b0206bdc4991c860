// Measures what runtime/machine_profile.hpp describes, on the machine and with the devices that the ranks have.
#pragma once

#include "apps/bench/bench_rank.hpp"
#include "runtime/cuda_gpu.hpp"
#include "runtime/machine_profile.hpp"

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ranvier::apps {

struct ProfileRequest {
  std::string name;                                ///< empty: what the device calls itself
  std::vector<std::filesystem::path> directories;  ///< for files, one on each disk; none: files are not measured
  std::optional<runtime::CudaGpu> gpu;             ///< none: ranks compute on CPUs
  double seconds = 40;  ///< it takes about so long, or one repetition of each measurement
};

/// All ranks call it alike, get the same, and measure at the same time, as they train. `node_of` by rank; between one
/// rank and itself there are no links. Loop thread only. README.md says how each figure is measured.
[[nodiscard]] runtime::MachineProfile measure_profile(BenchRank& rank, std::span<const int> node_of,
                                                      const ProfileRequest& request);

}  // namespace ranvier::apps

// Times files as tiers of states use them. Loop thread only.
#pragma once

#include "apps/bench/bench_rank.hpp"

#include <cstddef>
#include <filesystem>
#include <vector>

namespace ranvier::apps {

/// Of a node.
struct FileRates {
  double read_bytes_per_second = 0, write_bytes_per_second = 0;
  double latency_seconds = 0;  ///< of a block that is read
  std::size_t free_bytes = 0;  ///< of all directories together, before anything was written
};

/// All ranks call it alike, at the same time, and get the same; each has files of its own in every directory, which are
/// removed. Throws ErrorCode::io for a folder that cannot be used, or has no space.
[[nodiscard]] FileRates time_files(BenchRank& rank, const std::vector<std::filesystem::path>& directories,
                                   double seconds);

}  // namespace ranvier::apps

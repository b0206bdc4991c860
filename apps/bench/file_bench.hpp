// Times file access as in the nvme tier. Loop thread only.
#pragma once

#include "apps/bench/bench_rank.hpp"

#include <cstddef>
#include <filesystem>
#include <vector>

namespace ranvier::apps {

/// Rates per node.
struct FileRates {
  double read_bytes_per_second = 0, write_bytes_per_second = 0;
  double latency_seconds = 0;  ///< time to read a small block
  std::size_t free_bytes = 0;  ///< free bytes of all directories together, before the first write
};

/// Collective; returns the same on all ranks. Each rank has its own files in every directory and removes them. Throws
/// ErrorCode::io if a directory cannot be used or has too little space.
[[nodiscard]] FileRates time_files(BenchRank& rank, const std::vector<std::filesystem::path>& directories,
                                   double seconds);

}  // namespace ranvier::apps

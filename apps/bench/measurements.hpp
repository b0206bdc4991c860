// Measurements of a job's ranks: links, collectives, and a machine profile. Each function is collective.
// Loop thread only.
#pragma once

#include "apps/bench/bench_options.hpp"
#include "apps/bench/bench_rank.hpp"
#include "collectives/plans/link_file.hpp"
#include "runtime/device/cuda_build.hpp"
#include "runtime/machine/machine_profile.hpp"

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ranvier::apps {

/// Measures the links of collectives/plans/link_file.hpp through the transport of training; returns the same on all
/// ranks. `node_of`: node by rank. Link classes that do not occur stay unmeasured.
///
///   latency_seconds        half of a round trip of 8 bytes between two ranks
///   bytes_per_second       per direction, both ranks sending to each other at the same time, messages of 1 MiB
///   node_bytes_per_second  total of a node's ranks, each sending to one and receiving from another rank: within a
///                          node along a ring; between nodes to the rank with the same local rank on the next node
///
/// Takes about `seconds`, longer on slow links.
[[nodiscard]] collectives::Links measure_links(BenchRank& rank, std::span<const int> node_of, double seconds);

/// Times collectives, by plans and by MPI in turns. Rank 0 prints one JSON line per case, and on stderr the cases
/// skipped because of `options.seconds`. `links` give the predicted seconds.
void time_collectives(BenchRank& rank, const BenchOptions& options, std::span<const int> node_of,
                      const std::optional<collectives::Links>& links);

struct ProfileRequest {
  std::string name;                                ///< name of the profile; empty: the device's name
  std::vector<std::filesystem::path> directories;  ///< one per disk; empty: files are not measured
  std::optional<runtime::CudaGpu> gpu;             ///< none: ranks compute on CPUs
  double seconds = 40;  ///< approximate duration, at least one repetition of each measurement
};

/// Measures a machine profile with the devices of the ranks, which measure at the same time and return the same.
/// `node_of`: node by rank. A single rank measures no links. The README explains how each entry is measured.
[[nodiscard]] runtime::MachineProfile measure_profile(BenchRank& rank, std::span<const int> node_of,
                                                      const ProfileRequest& request);

}  // namespace ranvier::apps

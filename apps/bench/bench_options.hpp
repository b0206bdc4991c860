// Options of ranvier-bench. Pure functions, callable from any thread.
#pragma once

#include "apps/program/device_flag.hpp"
#include "apps/program/manual.hpp"
#include "collectives/plans/algorithms.hpp"
#include "collectives/plans/link_file.hpp"

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::apps {

struct BenchOptions {
  std::vector<std::string> words;  ///< "profile", or none
  std::string write_profile;       ///< path; "-": stdout; empty: this host's file (profile_file())
  std::string profile_name;        ///< name of the profile; empty: the device's name
  int threads = 0;                 ///< threads per CPU rank; 0: the rank's share of its machine's cores
  std::vector<std::filesystem::path> nvme;
  std::string write_links;  ///< path; empty: links are measured only without `collectives`
  std::string links;        ///< path; empty: none
  std::optional<collectives::Links> given_links;
  std::vector<collectives::Collective> collectives;
  std::vector<std::string> algorithms;  ///< names of algorithms.hpp and "mpi"; empty: all
  std::vector<std::size_t> sizes = {1 << 20, 16 << 20, 64 << 20};
  std::size_t chunk_bytes = collectives::PlanChoice{}.chunk_bytes;
  int depth = collectives::PlanChoice{}.depth;
  int repeat = 11;
  int node_size = 0;  ///< ranks per node; 0: nodes as reported by MPI
  double seconds = 60;
  bool overwrite = false;               ///< replaces existing output files
  DeviceFlag device = DeviceFlag::cpu;  ///< cpu or cuda
  std::optional<int> gpu;               ///< GPU number; none: the node's GPUs in turn
  InfoRequest info;

  [[nodiscard]] bool profiles() const { return !words.empty(); }
  /// True if links are measured, but no profile.
  [[nodiscard]] bool measures_links() const { return !profiles() && (collectives.empty() || !write_links.empty()); }

  /// Selected algorithms that the collective has. Without a selection: all, with "mpi" if the host can access the
  /// memory.
  [[nodiscard]] std::vector<std::string> algorithms_of(collectives::Collective collective) const;
};

/// Throws ErrorCode::usage.
[[nodiscard]] BenchOptions parse_bench_options(int argc, const char* const* argv);
[[nodiscard]] Manual bench_manual();
/// Hash that is equal for equal options.
[[nodiscard]] std::uint64_t options_hash(const BenchOptions& options);

}  // namespace ranvier::apps

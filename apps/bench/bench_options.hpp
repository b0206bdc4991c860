// What ranvier-bench was asked for. Pure; any thread.
#pragma once

#include "apps/program/device_flag.hpp"
#include "apps/program/manual.hpp"
#include "collectives/algorithms.hpp"
#include "collectives/link_file.hpp"
#include "collectives/plan_choice.hpp"

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::apps {

struct BenchOptions {
  std::vector<std::string> words;  ///< "profile", or none
  std::string write_profile;  ///< path; "-": stdout; empty: where programs look (program/profile_search_path.hpp)
  std::string profile_name;   ///< of the profile; empty: what the device calls itself
  int threads = 0;            ///< of a CPU; 0: this rank's share of the cores of its machine
  std::vector<std::filesystem::path> nvme;
  std::string write_links;  ///< path; empty: links are measured only if nothing else was asked for
  std::string links;        ///< path; empty: none
  std::optional<collectives::Links> given_links;
  std::vector<collectives::Collective> collectives;
  std::vector<std::string> algorithms;  ///< names of algorithms.hpp and "mpi"; empty: all
  std::vector<std::size_t> sizes = {1 << 20, 16 << 20, 64 << 20};
  std::size_t chunk_bytes = collectives::PlanChoice{}.chunk_bytes;
  int depth = collectives::PlanChoice{}.depth;
  int repeat = 11;
  int node_size = 0;  ///< 0: as MPI says
  double seconds = 60;
  bool overwrite = false;               ///< files named by flags may be replaced
  DeviceFlag device = DeviceFlag::cpu;  ///< cpu or cuda
  std::optional<int> gpu;               ///< of cuda; none: the local rank's, in turn
  InfoRequest info;

  [[nodiscard]] bool profiles() const { return !words.empty(); }
  /// Links alone, without the rest of a profile.
  [[nodiscard]] bool measures_links() const { return !profiles() && (collectives.empty() || !write_links.empty()); }

  /// The asked ones that the collective has; of all, with "mpi" where the host reaches the memory.
  [[nodiscard]] std::vector<std::string> algorithms_of(collectives::Collective collective) const;
};

/// Throws ErrorCode::usage.
[[nodiscard]] BenchOptions parse_bench_options(int argc, const char* const* argv);
[[nodiscard]] Manual bench_manual();
/// Equal where the same was asked for.
[[nodiscard]] std::uint64_t options_hash(const BenchOptions& options);

}  // namespace ranvier::apps

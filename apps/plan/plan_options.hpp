// What ranvier-plan was asked for: flags of its own, and those of ranvier-train, which say what is fixed. Pure; any
// thread.
#pragma once

#include "apps/program/profile_search_path.hpp"
#include "apps/train/options/train_options.hpp"

#include <optional>
#include <string>
#include <vector>

namespace ranvier::apps {

/// `node` takes `factor` times as long for its work, and for each byte on its links.
struct SlowNode {
  int node = 0;
  double factor = 1;
};

/// A share of all takes `factor` times as long.
struct SlowShare {
  double share = 0;
  double factor = 1;
};

struct PlanOptions {
  std::vector<GivenFlag> train;       ///< as given
  std::vector<std::string> profiles;  ///< names or paths; what the others are compared with comes first
  double price = 0;                   ///< of a device and an hour; 0: the profile's
  std::string write_config;
  bool overwrite = false;  ///< files of a plan may be replaced
  std::string write_trace;
  std::string plot;
  bool json = false;
  int best = 10;
  int simulations = 64;  ///< at most, of each search; 0: as many as it takes
  bool exhaustive = false;
  bool no_simulation = false;
  int jobs = 0;  ///< threads; 0: the machine's
  std::vector<double> bandwidth_times;
  std::vector<double> memory_times;
  std::vector<SlowNode> slow_nodes;
  std::vector<SlowShare> slow_ranks;  ///< for their work
  std::vector<SlowShare> slow_links;  ///< of nodes, for each byte
  std::vector<double> jitter;         ///< of all work: its standard deviation by its mean
  bool no_overlap = false;            ///< of computing and collectives
  std::vector<int> dead_ranks;
  int draw = 0;  ///< of what chance decides
  std::optional<bool>
      all_rows;            ///< are simulated, also those that do the same as others; none: unless they are many
  std::vector<int> scale;  ///< numbers of ranks, in the place of one
  InfoRequest info;

  [[nodiscard]] bool compares() const {
    return profiles.size() + bandwidth_times.size() + memory_times.size() + slow_nodes.size() + slow_ranks.size() +
               slow_links.size() + jitter.size() + dead_ranks.size() + (no_overlap ? 1 : 0) >
           1;
  }
};

/// Throws ErrorCode::usage that names flag, value and remedy, for flags of either program.
[[nodiscard]] PlanOptions parse_plan_options(int argc, const char* const* argv);

/// Without --profile: the one that is found for this machine. Returns it; empty: --profile was given. Throws
/// ErrorCode::usage where none is found.
[[nodiscard]] std::string add_found_profile(PlanOptions& options, const ProfileSearchPath& places);
[[nodiscard]] Manual plan_manual();

}  // namespace ranvier::apps

// Options of ranvier-plan: its own flags, and flags of ranvier-train, which fix values of the search. Pure functions,
// callable from any thread.
#pragma once

#include "apps/options/train_options.hpp"
#include "apps/program/profile_search_path.hpp"

#include <optional>
#include <string>
#include <vector>

namespace ranvier::apps {

/// Node whose work and link transfers take `factor` times as long.
struct SlowNode {
  int node = 0;
  double factor = 1;
};

/// Fraction of ranks or nodes that take `factor` times as long.
struct SlowShare {
  double share = 0;
  double factor = 1;
};

struct PlanOptions {
  std::vector<GivenFlag> train;       ///< given flags of ranvier-train
  std::vector<std::string> profiles;  ///< names or paths; the first is the reference of comparisons
  double price = 0;                   ///< price per device and hour; 0: the profile's
  std::string write_config;
  bool overwrite = false;  ///< replaces existing output files
  std::string write_trace;
  std::string plot;
  bool json = false;
  int best = 10;
  int simulations = 64;  ///< maximum per search; 0: unlimited
  bool exhaustive = false;
  bool no_simulation = false;
  int jobs = 0;  ///< simulation threads; parse_plan_options() replaces 0 by the number of cores
  std::vector<double> bandwidth_times;
  std::vector<double> memory_times;
  std::vector<SlowNode> slow_nodes;
  std::vector<SlowShare> slow_ranks;  ///< ranks with slow computation
  std::vector<SlowShare> slow_links;  ///< nodes with slow links
  std::vector<double> jitter;         ///< standard deviation of all work, divided by its mean
  bool no_overlap = false;            ///< computation and NCCL collectives exclude each other
  std::vector<int> dead_ranks;
  int draw = 0;                  ///< random seed
  std::optional<bool> all_rows;  ///< simulate all rows, or one of each kind; none: as usual_prediction()
  std::vector<int> scale;        ///< numbers of ranks, in place of --world
  InfoRequest info;

  [[nodiscard]] bool compares() const {
    return profiles.size() + bandwidth_times.size() + memory_times.size() + slow_nodes.size() + slow_ranks.size() +
               slow_links.size() + jitter.size() + dead_ranks.size() + (no_overlap ? 1 : 0) >
           1;
  }
};

/// Parses flags of both programs. Throws ErrorCode::usage with flag, value and remedy.
[[nodiscard]] PlanOptions parse_plan_options(int argc, const char* const* argv);

/// Device of a profile for these flags; `threads`: per CPU rank without --threads.
[[nodiscard]] ProfileSubject subject_of(const std::vector<GivenFlag>& flags, int threads);
/// Without --profile, adds the profile found for this machine and returns its name. Returns an empty string if
/// --profile was given. Throws ErrorCode::usage if none is found.
[[nodiscard]] std::string add_found_profile(PlanOptions& options, const ProfileSearchPath& places);
[[nodiscard]] Manual plan_manual();

}  // namespace ranvier::apps

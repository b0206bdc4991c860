// Search space of ranvier-plan. A candidate is a set of values for flags of ranvier-train. Given flags have one value.
// Pure functions, callable from any thread.
#pragma once

#include "apps/options/train_options.hpp"

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace ranvier::apps {

/// Candidate of the search. Empty text: the flag keeps its given value or its default.
struct Candidate {
  int g_inter = 1;
  int g_data = 1;
  std::string shard;
  int group_size = 0;  ///< rows per group; 0: without --group-size
  std::string offload;
  std::string secondary_tier;         ///< zero++: tier of the second copy of parameters
  std::string optimizer_budget = {};  ///< not enumerated; Planner::with_budget() chooses it
  int microbatch_size = 1;
  std::string recompute;
  std::string policy;
  std::string algorithms;  ///< name for all three collectives; "auto" for one without an algorithm of that name

  /// Whether states may be stored in files; ranvier-train refuses --nvme otherwise.
  [[nodiscard]] bool may_have_files() const { return offload.empty() || offload == "infinity-nvme"; }
  /// Names and values of all members above, in the order of the help text.
  [[nodiscard]] std::vector<GivenFlag> values() const;
  /// Flags of ranvier-train with the candidate's values.
  [[nodiscard]] std::vector<GivenFlag> flags() const;
  /// "4 × 16, zero2, myelin, 2 per microbatch, recompute auto, 1f1b".
  [[nodiscard]] std::string text() const;

  friend bool operator==(const Candidate&, const Candidate&) = default;
};

/// True if the flag has its default value, and that default does not depend on other flags.
[[nodiscard]] bool is_default(const GivenFlag& flag);

struct SpaceOptions {
  int world = 1;
  int node_size = 1;
  int layers = 1;      ///< maximum number of stages with one model chunk per rank
  int slices = 1;      ///< maximum number of model chunks
  int batch_size = 1;  ///< samples per step
  bool apart = false;  ///< the device has its own memory, so states can be offloaded
  bool files = false;  ///< states can be stored in files
  bool nccl = false;   ///< NCCL carries out collectives, by default with its own algorithms
  /// Given flags of ranvier-train by name, and the flags that they fix (OptionTraits::fixes).
  std::map<std::string, std::string> given = {};
  const char* start = "--world";  ///< command or flag that sets the number of ranks, for remedies
};

struct SearchSpace {
  std::vector<Candidate> candidates;
  std::map<std::string, std::size_t> left_out;  ///< number of grids or candidates left out, by reason
};

/// Enumerates grids, shardings by name and group size, offload, zero++'s second copy, microbatch sizes, recomputation,
/// schedules and algorithms. Microbatch sizes are powers of two, and a row's complete share of the batch. Equivalent
/// shardings appear once. Throws ErrorCode::usage with a remedy if no grid is possible.
[[nodiscard]] SearchSpace make_space(const SpaceOptions& options);

}  // namespace ranvier::apps

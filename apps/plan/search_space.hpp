// All ways to train a model that ranvier-plan chooses from, as data: a candidate is a value for each of some flags of
// ranvier-train, and means what these flags mean. What was given by hand is one value. Pure; any thread.
#pragma once

#include "apps/train/options/train_options.hpp"

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::apps {

/// Empty text: the flag is left to what was given, or to its default.
struct Candidate {
  int g_inter = 1;
  int g_data = 1;
  std::string shard;
  int group_size = 0;  ///< 0: the flag is left out
  std::string offload;
  int microbatch_size = 1;
  std::string recompute;
  std::string policy;
  std::string algorithms;  ///< of all three collectives; "auto" where one has none of that name

  /// Those that the candidate says, beside what was given.
  [[nodiscard]] std::vector<GivenFlag> flags() const;
  /// "4 × 16, zero2, myelin, 2 a microbatch, recompute auto, 1f1b", for people.
  [[nodiscard]] std::string text() const;

  friend bool operator==(const Candidate&, const Candidate&) = default;
};

/// Whether a run without the flag would do the same with any other flags.
[[nodiscard]] bool is_default(const GivenFlag& flag);

struct SpaceOptions {
  int world = 1;
  int node_size = 1;
  int layers = 1;      ///< that stages are cut from: a pipeline has at most so many stages
  int slices = 1;      ///< that the layers can be cut into, where ranks have several
  int batch_size = 1;  ///< samples of a step
  bool apart = false;  ///< the device has memory of its own, so that states may leave it
  bool files = false;  ///< there is a place for states in files
  bool nccl = false;   ///< carries out collectives, by rings of its own where it is not told otherwise
  std::map<std::string, std::string> given;  ///< flags of ranvier-train, by name
};

struct SearchSpace {
  std::vector<Candidate> candidates;
  std::map<std::string, std::size_t> left_out;  ///< why, and how many grids or candidates
};

/// Grids of all ranks; the named shardings, in groups that nodes divide into or that whole nodes make; names of
/// --offload; powers of two as microbatches, and a row's share of the batch; recomputation off, auto and of single
/// layers; policies; algorithms by name. Of what comes to the same one is taken. Throws ErrorCode::usage, with the
/// remedy, where nothing divides.
[[nodiscard]] SearchSpace make_space(const SpaceOptions& options);

}  // namespace ranvier::apps

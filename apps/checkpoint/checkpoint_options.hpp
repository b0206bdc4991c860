// Options of ranvier-checkpoint. Pure functions, callable from any thread.
#pragma once

#include "apps/program/manual.hpp"
#include "models/weights/weight_layout.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace ranvier::apps {

enum class CheckpointCommand { list, show, verify, export_weights, diff, prune };

struct CheckpointToolOptions {
  CheckpointCommand command = CheckpointCommand::list;
  std::vector<std::string> paths;
  std::string output;
  std::size_t file_bytes = models::WeightLayout::default_file_bytes;
  bool overwrite = false;
  bool merge = false;
  int keep = 0;
  std::int64_t archive_every = 0;
  bool dry_run = false;
  int threads = 0;  ///< threads of verify; parse_checkpoint_options() replaces 0 by the number of cores
  InfoRequest info;
};

/// Throws ErrorCode::usage, also for a wrong number of paths and for flags of another command.
[[nodiscard]] CheckpointToolOptions parse_checkpoint_options(int argc, const char* const* argv);
[[nodiscard]] Manual checkpoint_manual();

}  // namespace ranvier::apps

// What ranvier-checkpoint was asked for. Pure; any thread.
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
  int threads = 0;  ///< 0: the machine's
  InfoRequest info;
};

/// Throws ErrorCode::usage: also for flags of another command, and for too many or too few paths.
[[nodiscard]] CheckpointToolOptions parse_checkpoint_options(int argc, const char* const* argv);
[[nodiscard]] Manual checkpoint_manual();

}  // namespace ranvier::apps

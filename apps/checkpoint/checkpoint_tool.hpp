// One run of ranvier-checkpoint: options and commands. Callable from any thread; all commands block.
#pragma once

#include "apps/program/manual.hpp"
#include "models/weights/weight_layout.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace ranvier::apps {

struct CheckpointToolOptions;

struct CheckpointToolResult {
  std::string text;
  int status = 0;  ///< exit status: 1 if diff found differences, 65 if verify found damage
};

struct CheckpointToolOptions {
  /// Runs the command; null only with a request for information.
  CheckpointToolResult (*run)(const CheckpointToolOptions& options) = nullptr;
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

// Commands, named after their first word. They throw ErrorCode::data if the path is missing or damaged.

/// Table of a folder's checkpoints, oldest first, then incomplete ones with the reason and those being written.
[[nodiscard]] CheckpointToolResult list_checkpoints(const CheckpointToolOptions& options);

/// Describes one checkpoint: its run, scalars, arrays by state, files.
[[nodiscard]] CheckpointToolResult show_checkpoint(const CheckpointToolOptions& options);

/// Checks every byte of one checkpoint, or of all checkpoints of a folder.
[[nodiscard]] CheckpointToolResult verify_checkpoints(const CheckpointToolOptions& options);

/// Writes adapters as PEFT's files, unless they are merged. Otherwise writes weights (all or nothing), config.json and,
/// if readable, the run's tokenizer files. Returns a summary. Throws ErrorCode::data also for an unknown model, and
/// ErrorCode::usage if weights exist.
[[nodiscard]] CheckpointToolResult export_weights(const CheckpointToolOptions& options);

/// Compares options, scalars, tensors and states. Prints the largest absolute difference of each differing tensor, and
/// the largest one relative to the larger value. Different options and file layouts count as equal.
[[nodiscard]] CheckpointToolResult compare_checkpoints(const CheckpointToolOptions& options);

/// Removes old checkpoints and lists them. Throws ErrorCode::io if a job writes to the folder.
[[nodiscard]] CheckpointToolResult prune_checkpoints(const CheckpointToolOptions& options);

}  // namespace ranvier::apps

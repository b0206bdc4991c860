// One run of ranvier-checkpoint, and its commands. Callable from any thread; all functions block.
#pragma once

#include "apps/checkpoint/checkpoint_options.hpp"

#include <cstdint>
#include <filesystem>
#include <string>

namespace ranvier::apps {

struct CheckpointToolResult {
  std::string text;
  int status = 0;  ///< exit status: 1 if diff found differences, 65 if verify found damage
};

/// Throws like the command's function.
[[nodiscard]] CheckpointToolResult run_checkpoint_tool(const CheckpointToolOptions& options);

/// Table of a folder's checkpoints, oldest first, then incomplete ones with the reason and those being written. Throws
/// ErrorCode::data if the folder does not exist.
[[nodiscard]] std::string list_checkpoints(const std::filesystem::path& folder);

/// Describes one checkpoint: its run, scalars, arrays by state, files. Throws ErrorCode::data unless it is complete.
[[nodiscard]] std::string show_checkpoint(const std::filesystem::path& path);

/// Checks every byte of one checkpoint, or of all checkpoints of a folder.
[[nodiscard]] CheckpointToolResult verify_checkpoints(const std::filesystem::path& path, int threads);

/// Writes adapters as PEFT's files, unless they are merged. Otherwise writes weights (all or nothing), config.json and,
/// if readable, the run's tokenizer files. Returns a summary. Throws ErrorCode::data for a damaged checkpoint or an
/// unknown model, and ErrorCode::usage if weights exist.
[[nodiscard]] std::string export_weights(const std::filesystem::path& checkpoint,
                                         const CheckpointToolOptions& options);

/// Compares options, scalars, tensors and states. Prints the largest absolute difference of each differing tensor, and
/// the largest one relative to the larger value. Different options and file layouts count as equal. Throws
/// ErrorCode::data for an incomplete or damaged checkpoint.
[[nodiscard]] CheckpointToolResult compare_checkpoints(const std::filesystem::path& a,
                                                       const std::filesystem::path& b);

/// Removes old checkpoints and lists them. Throws ErrorCode::io if a job writes to the folder.
[[nodiscard]] std::string prune_checkpoints(const std::filesystem::path& folder, int keep,
                                            std::int64_t archive_every, bool dry_run);

}  // namespace ranvier::apps

// Lists, shows, verifies and prunes checkpoints. Callable from any thread; all functions block.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace ranvier::apps {

/// Table of a folder's checkpoints, oldest first, then incomplete ones with the reason and those being written. Throws
/// ErrorCode::data if the folder does not exist.
[[nodiscard]] std::string list_checkpoints(const std::filesystem::path& folder);

/// Describes one checkpoint: its run, scalars, arrays by state, files. Throws ErrorCode::data unless it is complete.
[[nodiscard]] std::string show_checkpoint(const std::filesystem::path& path);

struct Verification {
  std::string text;
  bool fine = true;
};
/// Checks every byte of one checkpoint, or of all checkpoints of a folder.
[[nodiscard]] Verification verify_checkpoints(const std::filesystem::path& path, int threads);

/// Removes old checkpoints and lists them. Throws ErrorCode::io if a job writes to the folder.
[[nodiscard]] std::string prune_checkpoints(const std::filesystem::path& folder, int keep,
                                            std::int64_t archive_every, bool dry_run);

}  // namespace ranvier::apps

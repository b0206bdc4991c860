// What there is of checkpoints, in words, and whether it is as it was written. Any thread; all of it blocks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace ranvier::apps {

/// A table of a folder's checkpoints, the oldest first, of what is being written, and of what is not whole and why.
/// Throws ErrorCode::data where there is no such folder.
[[nodiscard]] std::string list_checkpoints(const std::filesystem::path& folder);

/// One of them: the run that wrote it, scalars, arrays by state, files. Throws ErrorCode::data unless it is whole.
[[nodiscard]] std::string show_checkpoint(const std::filesystem::path& path);

struct Verification {
  std::string text;
  bool fine = true;
};
/// Checks every byte of a checkpoint or, of a folder, of all in it.
[[nodiscard]] Verification verify_checkpoints(const std::filesystem::path& path, int threads);

/// Removes older ones, and says which. Throws ErrorCode::io where a job writes there.
[[nodiscard]] std::string prune_checkpoints(const std::filesystem::path& folder, int keep,
                                            std::int64_t archive_every, bool dry_run);

}  // namespace ranvier::apps

// Checks of a run's outputs before training: no conflicts with each other or with inputs, writable, enough disk space.
// Also the retries of a save, and the file of --trace, with spans of all ranks for Chrome or Perfetto. Rank 0.
#pragma once

#include "apps/options/train_options.hpp"
#include "runtime/base/clock.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace ranvier::apps {

/// File of --save: the path itself if it has a weights extension, otherwise model.safetensors in that folder.
[[nodiscard]] std::filesystem::path weights_path(const std::string& save);

/// Path of the model's config.json; none if the weights have another name than model.safetensors, since the folder may
/// have several models.
[[nodiscard]] std::optional<std::filesystem::path> config_path(const std::string& save);

/// Throws ErrorCode::usage, naming both flags, if an output would overwrite an output or input, or lies in a data
/// folder that the next run reads. --overwrite lets --save replace the weights of --init-from. Also checks the path of
/// --save. Follows symbolic and hard links.
void check_outputs(const TrainOptions& options);

/// Throws ErrorCode::usage, naming flag and file, if --save, --save-every or --trace would replace existing files and
/// --overwrite is not given. For runs that do not resume: a resumed run replaces its own.
void check_replaced(const TrainOptions& options);

/// Creates the folder of --save, and removes partial outputs of killed runs. Throws ErrorCode::io if an output is not
/// writable.
void prepare_outputs(const TrainOptions& options);

/// Throws ErrorCode::io, with needed and free space, if `bytes` of weights do not fit next to existing files.
void check_space(const std::string& save, std::size_t bytes);

/// Retries a save for a while if the disk is full or the folder is missing. Prints a warning once per wait. Callable
/// from any thread, one at a time.
class DiskRetry {
 public:
  /// `patience`: longest duration of a wait. `what` and `bytes`: the saved object and its size, for the warning: "the
  /// weights take".
  DiskRetry(runtime::Duration patience, std::string what, std::uint64_t bytes)
      : patience_(patience), what_(std::move(what)), bytes_(bytes) {}

  /// Callback for AtomicFile::Retry: creates the parent folder of `path`, sleeps, and returns whether to try again.
  [[nodiscard]] bool operator()(const std::filesystem::path& path, int error);

 private:
  runtime::Duration patience_;
  std::string what_;
  std::uint64_t bytes_;
  std::optional<std::chrono::steady_clock::time_point> waiting_since_;
  std::chrono::steady_clock::time_point refused_{};  // time of the last failure
};

/// Path of the trace: `path`, or trace.from-500.json next to it if an earlier run wrote trace.json and this run resumes
/// after step 500.
[[nodiscard]] std::string trace_path(const std::string& path, std::int64_t step);

/// Writes the events, one text per rank. On a full disk it waits up to `patience` for space. Throws ErrorCode::io.
void write_trace(const std::string& path, std::span<const std::string> events, runtime::Duration patience);

}  // namespace ranvier::apps

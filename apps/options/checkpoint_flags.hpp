// Flags of ranvier-train for checkpoints (--checkpoint), resuming (--resume) and the end of a run (--time-limit).
// Declared into the program's option table, resolved after its parse(). One thread at a time.
#pragma once

#include "apps/options/option_effects.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::apps {

struct CheckpointOptions {
  std::string folder;                              ///< empty: no checkpoints
  std::int64_t every_steps = 0;                    ///< steps between checkpoints; 0: every_time applies
  std::optional<std::chrono::seconds> every_time;  ///< time between checkpoints; none: every_steps applies
  int keep = 3;                                    ///< newest checkpoints that are kept
  std::int64_t archive_every = 0;               ///< checkpoints at multiples of this step are never pruned; 0: none
  std::optional<std::size_t> bytes_per_second;  ///< largest write rate per rank and second; none: unlimited
  std::string resume = "none";                  ///< none, auto, or the path of a checkpoint or its folder
  std::vector<std::string> resume_with;         ///< flags that may differ from the checkpoint, without dashes
  std::optional<std::chrono::seconds> time_limit;   ///< counted from the start of the process; none: unlimited
  std::optional<std::chrono::seconds> stop_before;  ///< margin before time_limit; none only without a limit

  [[nodiscard]] bool resumes() const noexcept { return resume != "none"; }
};

/// Adds the concern "Stopping and resuming", bound to `options`, which outlives the table.
void declare_checkpoints(TrainTable& table, CheckpointOptions& options);

/// Resolves defaults. Throws ErrorCode::usage if a required flag is missing, or if --resume-with names an unknown flag.
void resolve_checkpoints(CheckpointOptions& options);

}  // namespace ranvier::apps

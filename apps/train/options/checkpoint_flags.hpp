// The flags about a training that several runs do: what they keep of it (--checkpoint), how the next one goes on
// (--resume), and when a run ends by itself (--time-limit). A part of ranvier-train's flags, declared into the
// program's table and resolved after its parse(). One thread at a time.
#pragma once

#include "runtime/options.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::apps {

struct CheckpointOptions {
  std::string folder;                              ///< empty: none are taken
  std::int64_t every_steps = 0;                    ///< 0: by time
  std::optional<std::chrono::seconds> every_time;  ///< none: by steps
  int keep = 3;
  std::int64_t archive_every = 0;               ///< checkpoints of so many steps are kept for ever; 0: none
  std::optional<std::size_t> bytes_per_second;  ///< that a rank writes at most; none: any
  std::string resume = "none";                  ///< none, auto, or the path of a checkpoint or of a folder of them
  std::vector<std::string> resume_with;         ///< flags whose new values are meant
  std::optional<std::chrono::seconds> time_limit;   ///< of the process; none: any
  std::optional<std::chrono::seconds> stop_before;  ///< the end of that; none only where there is no limit

  [[nodiscard]] bool resumes() const noexcept { return resume != "none"; }
};

/// Adds the concern "Stopping and resuming", bound to `options`, which outlives the table.
void declare_checkpoints(runtime::OptionTable& table, CheckpointOptions& options);

/// Fills in defaults. Throws ErrorCode::usage where a flag lacks what it needs, or names no flag of the table.
void resolve_checkpoints(CheckpointOptions& options, const runtime::OptionTable& table);

}  // namespace ranvier::apps

// One run of ranvier-checkpoint as a function. Callable from any thread; blocks.
#pragma once

#include "apps/checkpoint/checkpoint_options.hpp"

#include <string>

namespace ranvier::apps {

struct CheckpointToolResult {
  std::string text;
  int status = 0;  ///< exit status: 1 if diff found differences, 65 if verify found damage
};

/// Throws like the command's function (inspection.hpp, weight_export.hpp, comparison.hpp).
[[nodiscard]] CheckpointToolResult run_checkpoint_tool(const CheckpointToolOptions& options);

}  // namespace ranvier::apps

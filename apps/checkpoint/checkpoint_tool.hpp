// One run of ranvier-checkpoint, without a process. Any thread; blocks.
#pragma once

#include "apps/checkpoint/checkpoint_options.hpp"

#include <string>

namespace ranvier::apps {

struct CheckpointToolResult {
  std::string text;
  int status = 0;  ///< to exit with: 1 where two differ, 65 for damage
};

/// Throws as what the command calls does (inspection.hpp, weight_export.hpp, comparison.hpp).
[[nodiscard]] CheckpointToolResult run_checkpoint_tool(const CheckpointToolOptions& options);

}  // namespace ranvier::apps

// The flags about predictions, as a part of ranvier-train's. Declared into the program's table. One thread at a time.
#pragma once

#include "apps/train/options/train_options.hpp"
#include "runtime/options.hpp"

namespace ranvier::apps {

/// Adds them under a concern of their own. `run` outlives the table.
void declare_planning(runtime::OptionTable& table, RunOptions& run);

}  // namespace ranvier::apps

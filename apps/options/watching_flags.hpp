// Flags of ranvier-train for outputs that users watch. Declared into the program's option table. One thread at a time.
#pragma once

#include "apps/options/train_options.hpp"
#include "apps/program/options.hpp"

namespace ranvier::apps {

/// Adds the concern "Watching". `run` outlives the table.
void declare_watching(TrainTable& table, RunOptions& run);

}  // namespace ranvier::apps

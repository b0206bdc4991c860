// Flags of ranvier-train for predictions. Declared into the program's option table. One thread at a time.
#pragma once

#include "apps/options/train_options.hpp"
#include "apps/program/options.hpp"

namespace ranvier::apps {

/// Adds the concern "Planning". `run` outlives the table.
void declare_planning(TrainTable& table, RunOptions& run);

}  // namespace ranvier::apps

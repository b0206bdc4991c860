// The flags that say how microbatches go through the stages of a pipeline, as a part of ranvier-train's. Declared into
// the program's table. One thread at a time.
#pragma once

#include "actors/rank/trainer_options.hpp"
#include "runtime/options.hpp"

namespace ranvier::apps {

/// Adds to the concern "Batch". The trainer's options outlive the table.
void declare_pipeline(runtime::OptionTable& table, actors::TrainerOptions& trainer);

}  // namespace ranvier::apps

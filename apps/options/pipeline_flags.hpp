// Flags of ranvier-train for the pipeline schedule. Declared into the program's option table. One thread at a time.
#pragma once

#include "actors/rank/trainer_options.hpp"
#include "apps/options/option_effects.hpp"

namespace ranvier::apps {

/// Adds the flags to the concern "Batch". The trainer's options outlive the table.
void declare_pipeline(TrainTable& table, actors::TrainerOptions& trainer);

}  // namespace ranvier::apps

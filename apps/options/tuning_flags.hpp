// Flags of ranvier-train for adapters and frozen parameters. Declared into the program's option table, resolved after
// its parse(). One thread at a time.
#pragma once

#include "apps/options/train_options.hpp"
#include "apps/program/options.hpp"

namespace ranvier::apps {

/// Adds the flags to the current concern. `model` outlives the table.
void declare_tuning(TrainTable& table, ModelOptions& model);

/// Adopts the configuration of --init-adapter, and makes --save write an adapter. Throws ErrorCode::usage for
/// contradicting flags, ErrorCode::data for an unusable adapter.
void resolve_tuning(TrainOptions& options);

}  // namespace ranvier::apps

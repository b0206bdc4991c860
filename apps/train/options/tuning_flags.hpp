// The flags that say what of a model is trained, as a part of ranvier-train's. Declared into the program's table,
// resolved after its parse(). One thread at a time.
#pragma once

#include "apps/train/options/train_options.hpp"
#include "runtime/options.hpp"

namespace ranvier::apps {

/// Adds them to the concern that is open. `model` outlives the table.
void declare_tuning(runtime::OptionTable& table, ModelOptions& model);

/// Adopts what --init-adapter says of its adapter, and has --save write one. Throws ErrorCode::usage for flags that
/// contradict each other, ErrorCode::data for an adapter that cannot be used.
void resolve_tuning(TrainOptions& options, const runtime::OptionTable& table);

}  // namespace ranvier::apps

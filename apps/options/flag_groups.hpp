// Flags of ranvier-train that need no header of their own. Declared into the program's option table, which the bound
// options outlive; resolved after its parse(). One thread at a time.
#pragma once

#include "apps/options/train_options.hpp"

namespace ranvier::apps {

/// Binding of --blocks, the number of blocks per group of an image model: "3,4,6,3".
[[nodiscard]] OptionBinding blocks_flag(ModelOptions& model);
/// Disables the tokenizer for an image model. Throws ErrorCode::usage if a flag for text is given.
void resolve_images(TrainOptions& options);

/// Adds flags for adapters and frozen parameters to the current concern.
void declare_tuning(TrainTable& table, ModelOptions& model);
/// Adopts the configuration of --init-adapter, and makes --save write an adapter. Throws ErrorCode::usage for
/// contradicting flags, ErrorCode::data for an unusable adapter.
void resolve_tuning(TrainOptions& options);

/// Adds flags for the pipeline schedule to the concern "Batch".
void declare_pipeline(TrainTable& table, actors::TrainerOptions& trainer);

/// Adds the concern "Planning": predictions.
void declare_planning(TrainTable& table, RunOptions& run);
/// Adds the concern "Watching": outputs for users.
void declare_watching(TrainTable& table, RunOptions& run);

}  // namespace ranvier::apps

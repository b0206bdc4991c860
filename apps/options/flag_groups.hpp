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

/// Adds the concern "Data", bound to `data` and to the evaluation settings of `trainer`. All three outlive the table.
void declare_data(TrainTable& table, DataOptions& data, actors::TrainerOptions& trainer, const ModelOptions& model);

/// Whether --tokenizer PATH encodes at least a part of the data.
[[nodiscard]] bool encodes_text(const DataOptions& data);

/// Resolves tokenizer, vocabulary size and evaluation from the kind of data. Throws ErrorCode::usage for flags that
/// contradict each other or the data.
void resolve_data(TrainOptions& options);

/// Sets the names of the classes, from the initial weights or else from the data. Call after adopt_initial_weights().
/// Throws ErrorCode::usage if --label-field or --classes contradict them.
void resolve_labels(TrainOptions& options);

/// Checks that the data flags suit the final model. Throws ErrorCode::usage for a flag that needs another kind of model
/// (causal or masked).
void check_purpose(const TrainOptions& options);

}  // namespace ranvier::apps

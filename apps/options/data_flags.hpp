// Flags of ranvier-train for training and validation data. Declared into the program's option table, resolved after its
// parse(). One thread at a time.
#pragma once

#include "apps/options/train_options.hpp"
#include "apps/program/options.hpp"

namespace ranvier::apps {

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

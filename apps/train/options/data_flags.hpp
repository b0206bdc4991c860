// The flags that say what a run trains and evaluates on, as a part of ranvier-train's. Declared into the program's
// table, resolved after its parse(). One thread at a time.
#pragma once

#include "apps/train/options/train_options.hpp"
#include "runtime/options.hpp"

namespace ranvier::apps {

/// Adds the concern "Data", bound to `data` and to what `trainer` does with them. Both outlive the table.
void declare_data(runtime::OptionTable& table, DataOptions& data, actors::TrainerOptions& trainer);

/// Whether --tokenizer PATH makes tokens of some of the data.
[[nodiscard]] bool encodes_text(const DataOptions& data);

/// What follows from the kind of the data: tokenizer, vocabulary, evaluation. Throws ErrorCode::usage for flags that
/// contradict each other or the data.
void resolve_data(TrainOptions& options, const runtime::OptionTable& table);

/// Once weights to begin with are known: which classes the model tells, by those weights or by the data. Throws
/// ErrorCode::usage for --label-field or --classes that do not go with them.
void resolve_labels(TrainOptions& options, const runtime::OptionTable& table);

/// Once the model is known. Throws ErrorCode::usage for what only a model that says the next token can do, or only one
/// that fills masks.
void check_purpose(const TrainOptions& options);

}  // namespace ranvier::apps

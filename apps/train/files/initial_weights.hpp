// What --init-from means for the rest of a run: the weights come with sizes, a dropout, a tokenizer, and files that
// belong beside what is saved. What flags give wins where that makes sense, is refused where it does not, and what
// was taken from the weights is said. Any thread.
#pragma once

#include "apps/train/options/train_options.hpp"
#include "models/model.hpp"
#include "models/text/tokenizer.hpp"
#include "runtime/options.hpp"

#include <map>
#include <string>
#include <vector>

namespace ranvier::apps {

/// Family, sizes and dropout that no flag gives, from the tensors and the config.json beside them. Weights of no model
/// that is known here are left to the program that knows them. Throws ErrorCode::usage, naming flag and remedy, for a
/// flag that asks for another model than theirs, ErrorCode::data for weights that contradict themselves.
void adopt_initial_weights(TrainOptions& options, const runtime::OptionTable& table);

/// Where text is to be read and no flag says by which tokenizer: the one next to the weights, or bytes if they are all
/// that the model knows. Throws ErrorCode::usage if there is none, and for a preset's vocabulary without weights.
void choose_tokenizer(TrainOptions& options, const runtime::OptionTable& table);

/// What is saved beside the weights, by name, config.json apart: the tokenizer, and what transformers writes text
/// with.
[[nodiscard]] std::map<std::string, std::string> files_beside_weights(const TrainOptions& options);

/// generation_config.json for a model that writes text, of a tokenizer with an end of text: where texts begin and end,
/// by the keys that transformers reads. Empty: there is none.
[[nodiscard]] std::string generation_config(const models::ModelSizes& model, const models::Tokenizer& tokenizer);

/// Names of the classes that the weights are for, by number; none where they are for something else.
[[nodiscard]] std::vector<std::string> stored_labels(const TrainOptions& options);

/// config.json's text beside the weights; empty: none.
[[nodiscard]] std::string initial_config(const TrainOptions& options);

}  // namespace ranvier::apps

// Options that follow from --init-from: model family, sizes, dropout, tokenizer, and files that are saved with the
// weights. Flags override them or are refused; adopted values are added to TrainOptions::notes. Callable from any
// thread.
#pragma once

#include "apps/options/train_options.hpp"
#include "models/families/model.hpp"
#include "models/tokenizers/tokenizer.hpp"

#include <map>
#include <string>
#include <vector>

namespace ranvier::apps {

/// Adopts family, sizes and dropout that no flag sets from the tensors and their config.json. Leaves weights of an
/// unknown model to programs that define it. Throws ErrorCode::usage, naming flag and remedy, for a flag that
/// contradicts the weights, ErrorCode::data for inconsistent weights.
void adopt_initial_weights(TrainOptions& options);

/// Chooses the tokenizer of text without --tokenizer: the one next to the weights, or bytes if the vocabulary suits
/// them. Throws ErrorCode::usage if weights or a preset have a larger vocabulary and no tokenizer.
void choose_tokenizer(TrainOptions& options);

/// Content, by file name, of files that --save writes next to the weights: tokenizer and generation_config.json, but
/// not config.json.
[[nodiscard]] std::map<std::string, std::string> files_beside_weights(const TrainOptions& options);

/// Text of generation_config.json with the tokens that begin and end texts, for a causal language model whose tokenizer
/// has an end-of-text token; otherwise empty.
[[nodiscard]] std::string generation_config(const models::ModelSizes& model, const models::Tokenizer& tokenizer);

/// Names of the classes of the initial weights, by number; empty if they have no classes.
[[nodiscard]] std::vector<std::string> stored_labels(const TrainOptions& options);

/// Text of the config.json of the initial weights; empty if there is none.
[[nodiscard]] std::string initial_config(const TrainOptions& options);

}  // namespace ranvier::apps

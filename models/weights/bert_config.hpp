// The config.json of a BERT or RoBERTa in a Hugging Face folder. Any thread.
#pragma once

#include "models/bert.hpp"
#include "models/weights/config_file.hpp"

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::models {

/// Whether it is one of these, by its model_type.
[[nodiscard]] bool is_bert_type(std::string_view model_type);

struct BertConfig {
  BertOptions sizes;                     ///< the sequence length is that of all positions
  std::map<std::string, float> dropout;  ///< rates: hidden_dropout_prob and attention_probs_dropout_prob
};

/// Throws ErrorCode::data, naming file and key, where it is damaged or says what bert.hpp does not compute.
[[nodiscard]] BertConfig read_bert_config(const ConfigFile& config);

/// As transformers' class of the model reads it, BertForMaskedLM, BertForSequenceClassification or RoBERTa's; `like` as
/// in model_config_json().
[[nodiscard]] std::string bert_config_json(const BertOptions& options, const std::string& like);

/// Names of classes by number, as config.json has them ('id2label'); those without one as transformers calls them.
/// Throws ErrorCode::data, naming file and key, for what are none.
[[nodiscard]] std::vector<std::string> read_labels(const ConfigFile& config);
/// The same config with these names.
[[nodiscard]] std::string with_labels(const std::string& config, std::span<const std::string> labels);

}  // namespace ranvier::models

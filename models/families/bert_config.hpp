// Reads and writes the config.json of a BERT or RoBERTa in a Hugging Face folder. Any thread.
#pragma once

#include "models/families/bert.hpp"
#include "models/weights/config_file.hpp"

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::models {

/// Whether this model_type is bert or roberta.
[[nodiscard]] bool is_bert_type(std::string_view model_type);

struct BertConfig {
  BertOptions sizes;                     ///< the sequence length is the number of positions
  std::map<std::string, float> dropout;  ///< rates: hidden_dropout_prob and attention_probs_dropout_prob
};

/// Throws ErrorCode::data, naming file and key, if it is damaged or has values that bert.hpp does not support.
[[nodiscard]] BertConfig read_bert_config(const ConfigFile& config);

/// The config.json for transformers' class (BertForMaskedLM, BertForSequenceClassification or RoBERTa's); `like` as
/// in model_config_json().
[[nodiscard]] std::string bert_config_json(const BertOptions& options, const std::string& like);

/// Class names by number ('id2label'); unnamed classes get transformers' names. Throws ErrorCode::data, naming file
/// and key, for invalid values.
[[nodiscard]] std::vector<std::string> read_labels(const ConfigFile& config);
/// The same config with these names.
[[nodiscard]] std::string with_labels(const std::string& config, std::span<const std::string> labels);

}  // namespace ranvier::models

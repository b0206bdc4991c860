// The config.json of a BERT or RoBERTa in a Hugging Face folder. Any thread.
#pragma once

#include "models/bert.hpp"
#include "models/weights/config_file.hpp"

#include <map>
#include <string>
#include <string_view>

namespace ranvier::models {

/// Whether it is one of these, by its model_type.
[[nodiscard]] bool is_bert_type(std::string_view model_type);

struct BertConfig {
  BertOptions sizes;                     ///< the sequence length is that of all positions
  std::map<std::string, float> dropout;  ///< rates: hidden_dropout_prob and attention_probs_dropout_prob
};

/// Throws ErrorCode::data, naming file and key, where it is damaged or says what bert.hpp does not compute.
[[nodiscard]] BertConfig read_bert_config(const ConfigFile& config);

/// As transformers' BertForMaskedLM or RobertaForMaskedLM reads it; `like` as in model_config_json().
[[nodiscard]] std::string bert_config_json(const BertOptions& options, const std::string& like);

}  // namespace ranvier::models

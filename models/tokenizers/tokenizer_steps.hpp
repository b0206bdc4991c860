// Creates the steps of a tokenizer from tokenizer.json. All functions throw ErrorCode::data, naming file and key, for
// damaged or unsupported parts. Any thread.
#pragma once

#include "models/tokenizers/json_node.hpp"
#include "models/tokenizers/normalizer.hpp"
#include "models/tokenizers/pre_tokenizer.hpp"
#include "models/tokenizers/token_spelling.hpp"

#include <vector>

namespace ranvier::models {

/// Appends the steps of the node: none, one, or a sequence.
void add_normalizer(const JsonNode& node, Normalizers& to);

struct PreTokenizingSteps {
  PreTokenizers steps;
  bool of_bytes = false;  ///< after a ByteLevel, which must be the last step
};

void add_pre_tokenizer(const JsonNode& node, PreTokenizingSteps& to);

struct DecodingSteps {
  std::vector<TokenSpelling::Step> steps;
  bool fused = false;
  char stripped = ' ';
  int strips = 0;
};

void add_decoder(const JsonNode& node, DecodingSteps& to);

}  // namespace ranvier::models

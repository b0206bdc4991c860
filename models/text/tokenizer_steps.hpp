// The steps of a tokenizer as tokenizer.json writes them. All throw ErrorCode::data, naming file and key, for what is
// damaged or not read. Any thread.
#pragma once

#include "models/text/json_node.hpp"
#include "models/text/normalizer.hpp"
#include "models/text/pre_tokenizer.hpp"
#include "models/text/token_spelling.hpp"

#include <vector>

namespace ranvier::models {

/// Appends what the node describes: nothing, a step, or a sequence of them.
void add_normalizer(const JsonNode& node, Normalizers& to);

struct PreTokenizingSteps {
  PreTokenizers steps;
  bool of_bytes = false;  ///< a ByteLevel was met: nothing may follow
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

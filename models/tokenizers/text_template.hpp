// Tokens that a tokenizer adds around a text: from the post-processor of tokenizer.json (TemplateProcessing,
// BertProcessing, RobertaProcessing). For LLaMA's tokenizers from add_bos_token and add_eos_token of
// tokenizer_config.json, as in transformers. Any thread.
#pragma once

#include "models/tokenizers/json_node.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::models {

struct TextTemplate {
  std::vector<std::int32_t> beginning, ending;
};

using FindToken = std::function<std::optional<std::int32_t>(const std::string& spelling)>;

/// Template of a tokenizer.json in this folder. Throws ErrorCode::data, naming file and key, for an unknown token.
[[nodiscard]] TextTemplate text_template(const JsonNode& post_processor, const std::filesystem::path& folder,
                                         std::optional<std::int32_t> begin_of_text,
                                         std::optional<std::int32_t> end_of_text, const FindToken& find);
/// Template of a tokenizer.model in this folder: LLaMA's.
[[nodiscard]] TextTemplate sentencepiece_template(const std::filesystem::path& folder,
                                                  std::optional<std::int32_t> begin_of_text,
                                                  std::optional<std::int32_t> end_of_text);

}  // namespace ranvier::models

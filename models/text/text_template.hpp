// Tokens that a tokenizer puts around a text by itself: the post-processor of tokenizer.json says so
// (TemplateProcessing, BertProcessing, RobertaProcessing), but for LLaMA's tokenizers, as in transformers,
// add_bos_token and add_eos_token of tokenizer_config.json. Any thread.
#pragma once

#include "models/text/json_node.hpp"

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

/// For a tokenizer.json in this folder. Throws ErrorCode::data, naming file and key, for an unknown token.
[[nodiscard]] TextTemplate text_template(const JsonNode& post_processor, const std::filesystem::path& folder,
                                         std::optional<std::int32_t> begin_of_text,
                                         std::optional<std::int32_t> end_of_text, const FindToken& find);
/// For a tokenizer.model in this folder: LLaMA's template.
[[nodiscard]] TextTemplate sentencepiece_template(const std::filesystem::path& folder,
                                                  std::optional<std::int32_t> begin_of_text,
                                                  std::optional<std::int32_t> end_of_text);
/// Whether tokenizer.json puts tokens around texts.
[[nodiscard]] bool frames_texts(const JsonNode& post_processor, const std::filesystem::path& folder);

}  // namespace ranvier::models

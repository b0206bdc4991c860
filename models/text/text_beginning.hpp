// What a tokenizer puts before a text by itself: the post-processor of tokenizer.json says so (TemplateProcessing and
// those of BERT and RoBERTa), but of LLaMA's tokenizers, as transformers has them, "add_bos_token" of
// tokenizer_config.json. What is put behind a text is not read. Any thread.
#pragma once

#include "models/text/json_node.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::models {

/// Whether tokenizer_config.json in this folder is of a LLaMA's tokenizer, and has the token that begins a text put
/// before each, which is usual; none: it is of another one, or not there. Throws ErrorCode::data if it is damaged.
[[nodiscard]] std::optional<bool> adds_begin_of_text(const std::filesystem::path& folder);

using FindToken = std::function<std::optional<std::int32_t>(const std::string& spelling)>;

/// For a tokenizer.json in this folder: tokens by number. Throws ErrorCode::data, naming file and key, for what is no
/// token.
[[nodiscard]] std::vector<std::int32_t> text_beginning(const JsonNode& post_processor,
                                                       const std::filesystem::path& folder,
                                                       std::optional<std::int32_t> begin_of_text,
                                                       const FindToken& find);
/// Whether there are such tokens.
[[nodiscard]] bool begins_texts(const JsonNode& post_processor, const std::filesystem::path& folder);

}  // namespace ranvier::models

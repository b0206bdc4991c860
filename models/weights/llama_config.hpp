// The config.json of a LLaMA, Mistral, Qwen2 or Qwen3 in a Hugging Face folder. Any thread.
#pragma once

#include "models/llama.hpp"
#include "models/weights/config_file.hpp"

#include <string>
#include <string_view>

namespace ranvier::models {

/// Whether it is of one of these families, by its model_type.
[[nodiscard]] bool is_llama_type(std::string_view model_type);

/// Its sizes; the sequence length is the largest one that the model is for. Throws ErrorCode::data, naming file and
/// key, where it is damaged or says what llama.hpp does not compute.
[[nodiscard]] LlamaOptions read_llama_config(const ConfigFile& config);

/// As transformers' class of that family reads it; `like` as in model_config_json().
[[nodiscard]] std::string llama_config_json(const LlamaOptions& options, const std::string& like);

}  // namespace ranvier::models

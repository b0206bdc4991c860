// Reads and writes the config.json of a LLaMA, Mistral, Qwen2 or Qwen3 in a Hugging Face folder. Any thread.
#pragma once

#include "models/families/llama.hpp"
#include "models/weights/config_file.hpp"

#include <string>
#include <string_view>

namespace ranvier::models {

/// Whether this model_type belongs to one of these families.
[[nodiscard]] bool is_llama_type(std::string_view model_type);

/// Sizes of the model; the sequence length is its maximum. Throws ErrorCode::data, naming file and key, if it is
/// damaged or has values that llama.hpp does not support.
[[nodiscard]] LlamaOptions read_llama_config(const ConfigFile& config);

/// The config.json for transformers' class of that family; `like` as in model_config_json().
[[nodiscard]] std::string llama_config_json(const LlamaOptions& options, const std::string& like);

}  // namespace ranvier::models

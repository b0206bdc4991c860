// Config of a model of any family, and the sizes of stored weights: from config.json or, for a GPT-2, from the shapes
// of its tensors. Any thread.
#pragma once

#include "models/families/model.hpp"
#include "models/weights/safetensors.hpp"

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace ranvier::models {

struct ModelConfig {
  ModelSizes sizes;                      ///< the sequence length is the model's maximum
  std::map<std::string, float> dropout;  ///< rates by key; empty: the family has no dropout
  std::string text;                      ///< content of the file
};

/// Reads `folder`/config.json; none if it does not exist. Throws ErrorCode::io if it cannot be read, ErrorCode::data,
/// naming file and key, if it is damaged or unsupported.
[[nodiscard]] std::optional<ModelConfig> read_model_config(const std::filesystem::path& folder);

/// Parses the content of a file; messages name `path`.
[[nodiscard]] ModelConfig parse_model_config(std::string_view text, const std::filesystem::path& path);

/// The config.json for transformers' class of that family with fp32 weights. `like` is ModelConfig::text of the
/// original model, whose other keys are kept; empty: none.
[[nodiscard]] std::string model_config_json(const ModelSizes& sizes, const std::string& like = {});

struct StoredModel {
  ModelSizes sizes;
  std::optional<ModelConfig> config;  ///< none: no config.json
};

/// The model of these weights; `heads` is for a GPT-2 without config.json. None if neither tensors nor config.json
/// identify it. Throws like stored_gpt() and read_model_config().
[[nodiscard]] std::optional<StoredModel> stored_model(const Safetensors& weights, std::optional<int> heads);

}  // namespace ranvier::models

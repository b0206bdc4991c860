// What the config.json beside weights says of a model of any family, and the model whose weights some are: by that file
// or, of a GPT-2, by the shapes of its tensors. Any thread.
#pragma once

#include "models/model.hpp"
#include "models/weights/safetensors.hpp"

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace ranvier::models {

struct ModelConfig {
  ModelSizes sizes;                      ///< the sequence length is the largest that the model is for
  std::map<std::string, float> dropout;  ///< rates by their keys; empty: the family drops nothing
  std::string text;                      ///< the whole file
};

/// What `folder`/config.json says. Empty if there is no such file. Throws ErrorCode::io if it cannot be read,
/// ErrorCode::data, naming file and key, if it is damaged or of a model that is not computed here.
[[nodiscard]] std::optional<ModelConfig> read_model_config(const std::filesystem::path& folder);

/// The same of a file's content; messages name `path`.
[[nodiscard]] ModelConfig parse_model_config(std::string_view text, const std::filesystem::path& path);

/// As transformers' class of that family reads it, beside a model.safetensors of fp32. `like` is ModelConfig::text of
/// the model that this one was made of: all else that it says stays as it is written there. Empty: there is none.
[[nodiscard]] std::string model_config_json(const ModelSizes& sizes, const std::string& like = {});

struct StoredModel {
  ModelSizes sizes;
  std::optional<ModelConfig> config;  ///< none: there is no config.json
};

/// The model whose weights these are; `heads` are those of a GPT-2 without a config.json. None where neither tensors
/// nor a config.json say it. Throws as stored_gpt(), and read_model_config().
[[nodiscard]] std::optional<StoredModel> stored_model(const Safetensors& weights, std::optional<int> heads);

}  // namespace ranvier::models

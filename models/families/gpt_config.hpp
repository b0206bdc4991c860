// The config.json of a GPT-2 in a Hugging Face folder: sizes (the number of heads appears only here), and
// transformers' options for training and generation. Any thread.
#pragma once

#include "models/families/gpt.hpp"
#include "models/weights/safetensors.hpp"

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace ranvier::models {

struct GptConfig {
  GptOptions sizes;                      ///< layers, hidden, heads, vocab_size, sequence_length
  std::map<std::string, float> dropout;  ///< rates: embd_pdrop, attn_pdrop and resid_pdrop
  std::string text;                      ///< content of the file
};

/// Reads `folder`/config.json; none if it does not exist. Missing dropout rates are 0.1, as in transformers. Throws
/// ErrorCode::io if it cannot be read, ErrorCode::data, naming file and key, if it is damaged or unsupported by
/// gpt.hpp.
[[nodiscard]] std::optional<GptConfig> read_gpt_config(const std::filesystem::path& folder);

/// Parses the content of a file; messages name `path`.
[[nodiscard]] GptConfig parse_gpt_config(std::string_view text, const std::filesystem::path& path);

/// The config.json for transformers' GPT2LMHeadModel with fp32 weights. `like` is GptConfig::text of the original
/// model, whose other keys are kept; empty: none.
[[nodiscard]] std::string gpt_config_json(const GptOptions& options, const std::string& like = {});

struct StoredGpt {
  GptOptions sizes;                 ///< layers, hidden, heads, vocab_size, sequence_length
  std::optional<GptConfig> config;  ///< none: no config.json
};

/// Sizes of the GPT with these weights: from the shapes of its tensors. The number of heads is `heads` or comes from
/// config.json. Throws ErrorCode::data, naming the contradiction, if the tensors are not a GPT's or the config
/// belongs to another model. Throws ErrorCode::usage if the number of heads is unknown.
[[nodiscard]] StoredGpt stored_gpt(const Safetensors& weights, std::optional<int> heads);

}  // namespace ranvier::models

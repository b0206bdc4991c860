// The config.json that stands beside the weights of a GPT-2 in a Hugging Face folder: its sizes, among them the one
// that no tensor's shape shows, the number of heads; and what transformers trains and writes text with. Any thread.
#pragma once

#include "models/gpt.hpp"
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
  std::string text;                      ///< the whole file
};

/// What `folder`/config.json says. Empty if there is no such file. A dropout that it does not name is 0.1, as for
/// transformers. Throws ErrorCode::io if it cannot be read, ErrorCode::data, naming file and key, if it is damaged
/// or of a model that is computed in another way than gpt.hpp's.
[[nodiscard]] std::optional<GptConfig> read_gpt_config(const std::filesystem::path& folder);

/// The same of a file's content; messages name `path`.
[[nodiscard]] GptConfig parse_gpt_config(std::string_view text, const std::filesystem::path& path);

/// As transformers' GPT2LMHeadModel reads it, beside a model.safetensors of fp32. `like` is GptConfig::text of the
/// model that this one was made of: all else that it says stays as it is written there. Empty: there is none.
[[nodiscard]] std::string gpt_config_json(const GptOptions& options, const std::string& like = {});

struct StoredGpt {
  GptOptions sizes;                 ///< layers, hidden, heads, vocab_size, sequence_length
  std::optional<GptConfig> config;  ///< none: there is no config.json
};

/// The GPT whose weights these are: sizes from the shapes of its tensors; heads are `heads` or, without, those of
/// the config.json beside the weights. Throws ErrorCode::data, naming what contradicts what, if the tensors are not
/// a GPT's or the config is another model's, and ErrorCode::usage if nothing says how many heads there are.
[[nodiscard]] StoredGpt stored_gpt(const Safetensors& weights, std::optional<int> heads);

}  // namespace ranvier::models

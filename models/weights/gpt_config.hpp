// The config.json that stands beside the weights of a GPT-2 in a Hugging Face folder: its sizes, among them the one
// that no tensor's shape shows, the number of heads. Any thread.
#pragma once

#include "models/gpt.hpp"
#include "models/weights/safetensors.hpp"

#include <filesystem>
#include <optional>
#include <string>

namespace ranvier::models {

/// What `folder`/config.json says: layers, hidden, heads, vocab_size, sequence_length. Empty if there is no such
/// file. Throws ErrorCode::io if it cannot be read, ErrorCode::data, naming file and key, if it is damaged or of a
/// model that is computed in another way than gpt.hpp's.
[[nodiscard]] std::optional<GptOptions> read_gpt_config(const std::filesystem::path& folder);

/// As transformers' GPT2LMHeadModel reads it, beside a model.safetensors of fp32.
[[nodiscard]] std::string gpt_config_json(const GptOptions& options);

/// The sizes of the GPT whose weights these are, from the shapes of its tensors; heads are `heads` or, without,
/// those of the config.json beside the weights. Throws ErrorCode::data, naming what contradicts what, if the
/// tensors are not a GPT's or the config is another model's, and ErrorCode::usage if nothing says how many heads
/// there are.
[[nodiscard]] GptOptions stored_gpt(const Safetensors& weights, std::optional<int> heads);

}  // namespace ranvier::models

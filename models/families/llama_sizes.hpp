// Valid sizes of a LLaMA, for flags, config.json and code. Pure; any thread.
#pragma once

#include "models/families/llama.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace ranvier::models {

/// Names of the sizes in messages: the fields, or the flags or keys that set them.
struct LlamaSizeNames {
  std::string_view layers = "layers", hidden = "hidden", heads = "heads", key_heads = "key_heads",
                   head_size = "head_size", inner = "inner", vocab_size = "vocab_size",
                   sequence_length = "sequence_length", window = "window", tile = "tile";
};

/// Problem of invalid sizes, with a remedy; none if they are valid.
[[nodiscard]] std::optional<std::string> size_problem(const LlamaOptions& options,
                                                      const LlamaSizeNames& names = {});

/// Family of the model: "llama", "mistral", "qwen2" or "qwen3".
[[nodiscard]] std::string_view llama_family(const LlamaOptions& options) noexcept;

}  // namespace ranvier::models

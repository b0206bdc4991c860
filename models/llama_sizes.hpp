// Which sizes make a LLaMA: the one place that knows, for flags, for config.json and for code. Pure; any thread.
#pragma once

#include "models/llama.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace ranvier::models {

/// What a message calls them: the fields' own names, or those of the flags or keys that set them.
struct LlamaSizeNames {
  std::string_view layers = "layers", hidden = "hidden", heads = "heads", key_heads = "key_heads",
                   head_size = "head_size", inner = "inner", vocab_size = "vocab_size",
                   sequence_length = "sequence_length", window = "window", tile = "tile";
};

/// What is wrong with sizes that make no model, and what to choose. None: nothing is wrong.
[[nodiscard]] std::optional<std::string> size_problem(const LlamaOptions& options,
                                                      const LlamaSizeNames& names = {});

/// Whose model it is: "llama", "mistral", "qwen2" or "qwen3".
[[nodiscard]] std::string_view llama_family(const LlamaOptions& options) noexcept;

}  // namespace ranvier::models

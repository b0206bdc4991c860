// Which sizes make a GPT: the one place that knows, for flags, for config.json and for code. Pure; any thread.
#pragma once

#include "models/gpt.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace ranvier::models {

/// What a message calls them: the fields' own names, or those of the flags or keys that set them.
struct GptSizeNames {
  std::string_view layers = "layers", hidden = "hidden", heads = "heads", vocab_size = "vocab_size",
                   sequence_length = "sequence_length", tile = "tile", dropout = "dropout";
};

/// What is wrong with sizes that make no model, and what to choose: "heads 7 does not divide hidden 384: …". None:
/// nothing is wrong.
[[nodiscard]] std::optional<std::string> size_problem(const GptOptions& options, const GptSizeNames& names = {});

}  // namespace ranvier::models

// Valid sizes of a GPT, for flags, config.json and code. Pure; any thread.
#pragma once

#include "models/families/gpt.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace ranvier::models {

/// Names of the sizes in messages: the fields, or the flags or keys that set them.
struct GptSizeNames {
  std::string_view layers = "layers", hidden = "hidden", heads = "heads", vocab_size = "vocab_size",
                   sequence_length = "sequence_length", tile = "tile", dropout = "dropout";
};

/// Problem of invalid sizes, with a remedy: "heads 7 does not divide hidden 384; …". None if they are valid.
[[nodiscard]] std::optional<std::string> size_problem(const GptOptions& options, const GptSizeNames& names = {});

}  // namespace ranvier::models

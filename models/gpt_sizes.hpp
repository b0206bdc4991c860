// Which sizes make a GPT: the one place that knows, for flags, for config.json and for code. Pure; any thread.
#pragma once

#include "models/gpt.hpp"

#include <cstdint>
#include <initializer_list>
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

/// The greatest divisor of `whole` that is not above `wanted`; both are positive.
[[nodiscard]] int divisor_near(int wanted, int whole);

/// What tiles have to divide, and how a message calls it: "--hidden 384".
struct TiledSize {
  std::string name;
  std::int64_t channels = 1;
};
/// What is wrong with so many tiles of each matrix, and what to choose.
[[nodiscard]] std::optional<std::string> tile_problem(std::string_view tile_name, int tile,
                                                      std::initializer_list<TiledSize> sizes);

}  // namespace ranvier::models

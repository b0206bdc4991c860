// Which sizes make a BERT: the one place that knows, for flags, for config.json and for code. Pure; any thread.
#pragma once

#include "models/bert.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace ranvier::models {

/// What a message calls them: the fields' own names, or those of the flags or keys that set them.
struct BertSizeNames {
  std::string_view layers = "layers", hidden = "hidden", heads = "heads", inner = "inner",
                   vocab_size = "vocab_size", sequence_length = "sequence_length", types = "types",
                   padding_token = "padding_token", tile = "tile", dropout = "dropout", classes = "classes";
};

/// What is wrong with sizes that make no model, and what to choose. None: nothing is wrong.
[[nodiscard]] std::optional<std::string> size_problem(const BertOptions& options, const BertSizeNames& names = {});

/// Whose model it is: "bert" or "roberta".
[[nodiscard]] std::string_view bert_family(const BertOptions& options) noexcept;

}  // namespace ranvier::models

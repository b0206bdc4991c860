// Valid sizes of a BERT, for flags, config.json and code. Pure; any thread.
#pragma once

#include "models/families/bert.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace ranvier::models {

/// Names of the sizes in messages: the fields, or the flags or keys that set them.
struct BertSizeNames {
  std::string_view layers = "layers", hidden = "hidden", heads = "heads", inner = "inner",
                   vocab_size = "vocab_size", sequence_length = "sequence_length", types = "types",
                   padding_token = "padding_token", tile = "tile", dropout = "dropout", classes = "classes";
};

/// Problem of invalid sizes, with a remedy; none if they are valid.
[[nodiscard]] std::optional<std::string> size_problem(const BertOptions& options, const BertSizeNames& names = {});

/// Family of the model: "bert" or "roberta".
[[nodiscard]] std::string_view bert_family(const BertOptions& options) noexcept;

}  // namespace ranvier::models

// Reads and checks config.json of any family, for tests.
#pragma once

#include "models/families/model.hpp"
#include "tests/test.hpp"

namespace ranvier::models {

inline ModelConfig parsed_config(const std::string& json) { return parse_model_config(json, "folder/config.json"); }

template <typename Options>
Options sizes_in(const std::string& json) {
  return std::get<Options>(parsed_config(json).sizes);
}

/// Config of a small transformer, with additional keys.
inline std::string small_config(std::string_view type, const std::string& more = {}) {
  return R"({"model_type": ")" + std::string(type) +
         R"(", "num_hidden_layers": 3, "hidden_size": 48, "num_attention_heads": 6, "num_key_value_heads": 2,
            "intermediate_size": 80, "vocab_size": 70, "max_position_embeddings": 64, "rms_norm_eps": 1e-05)" +
         (more.empty() ? "" : ", " + more) + "}";
}

inline bool same_sizes(const ModelSizes& a, const ModelSizes& b) { return with_all_sizes(a) == with_all_sizes(b); }

/// Checks that the config is refused with these words, and with the name of the file.
template <typename... Words>
void check_refused(const std::string& json, const Words&... words) {
  const Error error = tests::error_of([&] { static_cast<void>(parsed_config(json)); });
  CHECK(tests::says(error, ErrorCode::data, "config.json", words...));
}

}  // namespace ranvier::models

#pragma once

#include "models/core/sample_source.hpp"
#include "models/tokenizers/tokenizer.hpp"

#include <cstdint>

namespace ranvier::models {

/// Mean bytes of text per token with a loss, in the first `samples` of a validation; special tokens count 0 bytes.
/// Reads up to 16 Mi tokens, from evenly spread samples if there are more. 0: no token has a loss.
[[nodiscard]] double bytes_per_token(const Tokenizer& tokenizer, const SampleSource& validation,
                                     std::int64_t samples);

}  // namespace ranvier::models

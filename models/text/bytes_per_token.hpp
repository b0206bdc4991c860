#pragma once

#include "models/sample_source.hpp"
#include "models/text/tokenizer.hpp"

#include <cstdint>

namespace ranvier::models {

/// Bytes of text per token with a loss, in the first `samples` of a validation; special tokens stand for no byte. Reads
/// up to 16 Mi tokens, of more samples some that are spread evenly. 0: no token has a loss.
[[nodiscard]] double bytes_per_token(const Tokenizer& tokenizer, const SampleSource& validation,
                                     std::int64_t samples);

}  // namespace ranvier::models

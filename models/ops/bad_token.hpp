// Errors for tokens outside the vocabulary, on any device.
#pragma once

#include "models/ops/embedding.hpp"
#include "runtime/base/error.hpp"

#include <cstddef>
#include <cstdint>

namespace ranvier::models {

/// `index`: position in the microbatch, counted sample by sample.
[[noreturn]] inline void fail_bad_token(std::int32_t token, std::size_t index, const EmbeddingShape& shape) {
  fail(ErrorCode::data,
       "token {} at position {} of sample {} of the microbatch is outside the vocabulary of {}; use the tokenizer "
       "of the data, or a larger `vocab_size`",
       token, index % shape.positions, index / shape.positions, shape.vocab_size);
}

[[noreturn]] inline void fail_bad_target(std::int32_t target, std::size_t index, std::size_t vocab_size) {
  fail(ErrorCode::data,
       "target token {} (number {} of the microbatch) is outside the vocabulary of {}; use the tokenizer of the "
       "data, or a larger `vocab_size`",
       target, index, vocab_size);
}

[[noreturn]] inline void fail_many_targets(std::size_t count, std::size_t sample, std::size_t most) {
  fail(ErrorCode::data,
       "sample {1} of the microbatch has {0} targets, but the model was built for at most {2}; use a source with "
       "fewer targets, or build the model for more",
       count, sample, most);
}

}  // namespace ranvier::models

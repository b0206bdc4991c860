// What is said of a token outside the vocabulary, on any device.
#pragma once

#include "models/ops/embedding.hpp"
#include "runtime/error.hpp"

#include <cstddef>
#include <cstdint>

namespace ranvier::models {

/// `index` counts positions of the microbatch, samples one after another.
[[noreturn]] inline void fail_bad_token(std::int32_t token, std::size_t index, const EmbeddingShape& shape) {
  fail(ErrorCode::data,
       "token {} at position {} of sample {} of the microbatch is outside the vocabulary of {}: use the tokenizer "
       "that the data was made with, or a larger --vocab-size",
       token, index % shape.positions, index / shape.positions, shape.vocab_size);
}

[[noreturn]] inline void fail_bad_target(std::int32_t target, std::size_t index, std::size_t vocab_size) {
  fail(ErrorCode::data,
       "target token {} (number {} of the microbatch) is outside the vocabulary of {}: use the tokenizer that the "
       "data was made with, or a larger --vocab-size",
       target, index, vocab_size);
}

}  // namespace ranvier::models

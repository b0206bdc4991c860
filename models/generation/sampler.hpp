// Samples a token from logits, as a pure function: random numbers are counter-based (Philox), so token number n of a
// text depends only on logits, options and n. Any thread.
#pragma once

#include <cstdint>
#include <span>

namespace ranvier::models {

struct SamplingOptions {
  double temperature = 0.8;  ///< divisor of the logits; 0: always the most probable token
  int top_k = 200;           ///< number of most probable tokens to sample from; 0: all
  double top_p = 1;          ///< sample from the smallest set of these tokens whose total probability reaches this
  std::uint64_t seed = 1234;
  std::uint32_t text = 0;   ///< number of the text, if one seed generates several
  std::int32_t tokens = 0;  ///< sample only tokens below this; 0: all
};

/// Samples token number `number` of a text. Among equal logits the lower token comes first. Throws
/// ErrorCode::numeric if a logit is not a number.
[[nodiscard]] std::int32_t sample_token(std::span<const float> logits, const SamplingOptions& options,
                                        std::uint64_t number);

}  // namespace ranvier::models

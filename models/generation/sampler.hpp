// From logits to a token. A pure function: the draw is made by counter (Philox), so that token number n of a text
// depends on logits, options and n alone. Any thread.
#pragma once

#include <cstdint>
#include <span>

namespace ranvier::models {

struct SamplingOptions {
  double temperature = 0.8;  ///< logits are divided by it; 0: always the likeliest token
  int top_k = 200;           ///< draw among so many of the likeliest tokens; 0: among all
  double top_p = 1;          ///< of those, among the fewest of the likeliest whose probabilities reach it
  std::uint64_t seed = 1234;
  std::uint32_t text = 0;   ///< which of several that one seed draws
  std::int32_t tokens = 0;  ///< only those below it are drawn; 0: all
};

/// The token drawn as number `number` of a text. Of equal logits the lower token counts as the likelier. Throws
/// ErrorCode::numeric if a logit is not a number.
[[nodiscard]] std::int32_t sample_token(std::span<const float> logits, const SamplingOptions& options,
                                        std::uint64_t number);

}  // namespace ranvier::models

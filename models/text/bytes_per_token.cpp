#include "models/text/bytes_per_token.hpp"

#include "models/ops/cross_entropy.hpp"

#include <algorithm>
#include <span>
#include <string>
#include <vector>

namespace ranvier::models {

double bytes_per_token(const Tokenizer& tokenizer, const SampleSource& validation, std::int64_t samples) {
  constexpr std::int64_t max_tokens = 1 << 24;
  const auto known = static_cast<std::size_t>(tokenizer.size());
  std::vector<std::size_t> inside(known), first(known);  // bytes, `first`: behind a special token
  const SpecialTokens special = tokenizer.specials();
  for (std::int32_t token = 0; token < tokenizer.size(); ++token) {
    if (token == special.begin_of_text || token == special.end_of_text) continue;
    std::string text;
    tokenizer.decode(token, text);
    inside[static_cast<std::size_t>(token)] = text.size();
    first[static_cast<std::size_t>(token)] = tokenizer.decode(std::span(&token, 1)).size();
  }
  const std::int64_t length = validation.losses_per_sample();
  const std::int64_t count = std::clamp<std::int64_t>(max_tokens / length, 1, samples);
  std::vector<std::int32_t> inputs(static_cast<std::size_t>(length)), targets(inputs.size());
  std::size_t bytes = 0, losses = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t sample = i * samples / count;
    validation.read_inputs(sample, 1, reinterpret_cast<std::byte*>(inputs.data()));
    validation.read_targets(sample, 1, reinterpret_cast<std::byte*>(targets.data()));
    for (std::size_t p = 0; p < targets.size(); ++p) {
      if (targets[p] == no_target) continue;
      ++losses;
      const auto token = static_cast<std::size_t>(targets[p]), before = static_cast<std::size_t>(inputs[p]);
      if (token < known) bytes += before < known && inside[before] == 0 ? first[token] : inside[token];
    }
  }
  return losses == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(losses);
}

}  // namespace ranvier::models

#include "models/generation/sampler.hpp"

#include "runtime/base/error.hpp"
#include "runtime/base/philox.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace ranvier::models {
namespace {

/// Uniform in [0, 1) with 53 bits.
double uniform(const SamplingOptions& options, std::uint64_t number) {
  const auto key = runtime::philox_key(options.seed, runtime::RandomPurpose::sampling);
  const auto bits = runtime::philox(
      key, {static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32), options.text, 0});
  return static_cast<double>((std::uint64_t{bits[0]} << 32 | bits[1]) >> 11) * 0x1p-53;
}

/// Keeps the smallest set of most probable tokens whose total probability reaches `top_p`, sorted by probability.
template <typename Likelier, typename Weight>
void keep_nucleus(std::vector<std::int32_t>& tokens, double top_p, const Likelier& likelier, const Weight& weight) {
  double total = 0;
  for (const std::int32_t token : tokens) total += weight(token);
  // Tokens below this have a total probability below 1 - top_p. They are not needed, so few tokens are sorted.
  const double least = (1 - top_p) * total / static_cast<double>(tokens.size());
  std::erase_if(tokens, [&](std::int32_t token) { return weight(token) < least; });
  std::sort(tokens.begin(), tokens.end(), likelier);
  double sum = 0;
  std::size_t kept = 0;
  while (kept < tokens.size() && (kept == 0 || sum < top_p * total)) sum += weight(tokens[kept++]);
  tokens.resize(kept);
}

}  // namespace

std::int32_t sample_token(std::span<const float> logits, const SamplingOptions& options, std::uint64_t number) {
  if (options.tokens > 0 && static_cast<std::size_t>(options.tokens) < logits.size())
    logits = logits.first(static_cast<std::size_t>(options.tokens));
  expect(!logits.empty(), "logits are empty");
  for (const float logit : logits) {
    if (std::isnan(logit)) fail(ErrorCode::numeric, "a logit is not a number: the weights make no model");
  }
  const auto likelier = [logits](std::int32_t a, std::int32_t b) {
    const float first = logits[static_cast<std::size_t>(a)], second = logits[static_cast<std::size_t>(b)];
    return first != second ? first > second : a < b;
  };
  std::vector<std::int32_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  const auto likeliest = *std::min_element(tokens.begin(), tokens.end(), likelier);
  if (options.temperature == 0) return likeliest;

  const double greatest = static_cast<double>(logits[static_cast<std::size_t>(likeliest)]);
  const auto weight = [&](std::int32_t token) {
    const auto logit = static_cast<double>(logits[static_cast<std::size_t>(token)]);
    return logit == greatest ? 1.0 : std::exp((logit - greatest) / options.temperature);
  };
  if (options.top_k > 0 && static_cast<std::size_t>(options.top_k) < tokens.size()) {
    const auto end = tokens.begin() + options.top_k;
    std::nth_element(tokens.begin(), end, tokens.end(), likelier);
    tokens.erase(end, tokens.end());
    std::sort(tokens.begin(), tokens.end(), likelier);  // order of sums is independent of the library
  }
  if (options.top_p < 1) keep_nucleus(tokens, options.top_p, likelier, weight);

  std::vector<double> sums(tokens.size());
  double total = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) sums[i] = total += weight(tokens[i]);
  const auto drawn = std::upper_bound(sums.begin(), sums.end(), uniform(options, number) * total);
  return tokens[static_cast<std::size_t>(std::min(drawn, sums.end() - 1) - sums.begin())];
}

}  // namespace ranvier::models

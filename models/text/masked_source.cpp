#include "models/text/masked_source.hpp"

#include "runtime/base/error.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace ranvier::models {

std::int64_t tokens_to_find(double probability, std::int64_t tokens) {
  return std::max<std::int64_t>(1, std::lround(probability * static_cast<double>(tokens)));
}

MaskedSource::MaskedSource(std::unique_ptr<SampleSource> all, MaskingOptions options)
    : TokenSamples(static_cast<int>(all->input_bytes() / sizeof(std::int32_t))),
      all_(std::move(all)),
      options_(std::move(options)),
      key_(runtime::philox_key(options_.seed, runtime::RandomPurpose::masking)),
      chosen_(tokens_to_find(options_.probability, positions())) {
  expect(chosen_ <= positions() && options_.mask_token >= 0 && options_.tokens > 0,
         "masking is out of range: {} of {} tokens, by token {} or one of {}", chosen_, positions(),
         options_.mask_token, options_.tokens);
}

std::vector<MaskedSource::Draw> MaskedSource::choose(std::int64_t n, const std::int32_t* tokens) const {
  const auto sample = static_cast<std::uint64_t>(n);
  const auto& specials = options_.special_tokens;
  std::vector<Draw> draws(static_cast<std::size_t>(filled(n)));
  for (std::uint32_t position = 0; position < draws.size(); ++position) {
    const auto bits =
        runtime::philox(key_, {position, options_.validation ? 1u : 0u, static_cast<std::uint32_t>(sample),
                               static_cast<std::uint32_t>(sample >> 32)});
    draws[position] = {std::find(specials.begin(), specials.end(), tokens[position]) != specials.end(),
                       std::uint64_t{bits[0]} << 32 | bits[1], position, bits[2], bits[3]};
  }
  const std::int64_t chosen = losses_of(n);
  std::nth_element(draws.begin(), draws.begin() + (chosen - 1), draws.end());
  draws.resize(static_cast<std::size_t>(chosen));
  return draws;
}

void MaskedSource::read_input(std::int64_t n, std::byte* to) const {
  constexpr float masked = 0.8f, replaced = 0.9f;
  all_->read_input(n, to);
  auto* const tokens = reinterpret_cast<std::int32_t*>(to);
  for (const Draw& draw : choose(n, tokens)) {
    std::int32_t& token = tokens[draw.position];
    const float change = runtime::uniform(draw.change);
    if (change < masked)
      token = options_.mask_token;
    else if (change < replaced)
      token =
          static_cast<std::int32_t>(std::uint64_t{draw.token} * static_cast<std::uint32_t>(options_.tokens) >> 32);
  }
}

void MaskedSource::read_target(std::int64_t n, std::byte* to) const {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(positions()));
  all_->read_input(n, reinterpret_cast<std::byte*>(tokens.data()));
  auto* const targets = reinterpret_cast<std::int32_t*>(to);
  std::fill_n(targets, positions(), no_target);
  for (const Draw& draw : choose(n, tokens.data())) targets[draw.position] = tokens[draw.position];
}

}  // namespace ranvier::models

#include "models/text/masked_source.hpp"

#include "runtime/base/error.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

namespace ranvier::models {

std::int64_t tokens_to_find(double probability, std::int64_t tokens) {
  return std::max<std::int64_t>(1, std::lround(probability * static_cast<double>(tokens)));
}

MaskedSource::MaskedSource(std::unique_ptr<SampleSource> all, MaskingOptions options)
    : all_(std::move(all)),
      options_(std::move(options)),
      key_(runtime::philox_key(options_.seed, runtime::RandomPurpose::masking)),
      length_(static_cast<std::int64_t>(all_->input_bytes() / sizeof(std::int32_t))),
      chosen_(tokens_to_find(options_.probability, length_)) {
  expect(chosen_ <= length_ && options_.mask_token >= 0 && options_.tokens > 0,
         "masking is out of range: {} of {} tokens, by token {} or one of {}", chosen_, length_,
         options_.mask_token, options_.tokens);
}

std::int64_t MaskedSource::losses(std::int64_t first, std::int64_t count) const {
  std::int64_t losses = 0;
  for (std::int64_t n = first; n < first + count; ++n) losses += tokens_to_find(options_.probability, tokens(n));
  return losses;
}

template <typename F>
void MaskedSource::for_each_sample(std::int64_t first, int count, std::byte* to, F&& f) const {
  all_->read_inputs(first, count, to);
  auto* at = reinterpret_cast<std::int32_t*>(to);
  const auto& specials = options_.special_tokens;
  std::vector<Draw> draws(static_cast<std::size_t>(length_));
  for (std::int64_t n = first; n < first + count; ++n, at += length_) {
    const auto sample = static_cast<std::uint64_t>(n);
    const std::int64_t filled = tokens(n), chosen = tokens_to_find(options_.probability, filled);
    for (std::uint32_t position = 0; position < filled; ++position) {
      const auto bits =
          runtime::philox(key_, {position, options_.validation ? 1u : 0u, static_cast<std::uint32_t>(sample),
                                 static_cast<std::uint32_t>(sample >> 32)});
      draws[position] = {std::find(specials.begin(), specials.end(), at[position]) != specials.end(),
                         std::uint64_t{bits[0]} << 32 | bits[1], position, bits[2], bits[3]};
    }
    std::nth_element(draws.begin(), draws.begin() + static_cast<std::ptrdiff_t>(chosen - 1),
                     draws.begin() + static_cast<std::ptrdiff_t>(filled));
    f(std::span(at, static_cast<std::size_t>(length_)),
      std::span<const Draw>(draws).first(static_cast<std::size_t>(chosen)));
  }
}

void MaskedSource::read_inputs(std::int64_t first, int count, std::byte* to) const {
  constexpr float masked = 0.8f, replaced = 0.9f;
  for_each_sample(first, count, to, [this](std::span<std::int32_t> tokens, std::span<const Draw> chosen) {
    for (const Draw& draw : chosen) {
      std::int32_t& token = tokens[draw.position];
      const float change = runtime::uniform(draw.change);
      if (change < masked) {
        token = options_.mask_token;
      } else if (change < replaced) {
        token = static_cast<std::int32_t>(std::uint64_t{draw.token} * static_cast<std::uint32_t>(options_.tokens) >>
                                          32);
      }
    }
  });
}

void MaskedSource::read_targets(std::int64_t first, int count, std::byte* to) const {
  std::vector<std::int32_t> targets(static_cast<std::size_t>(length_));
  for_each_sample(first, count, to, [&](std::span<std::int32_t> tokens, std::span<const Draw> chosen) {
    std::fill(targets.begin(), targets.end(), no_target);
    for (const Draw& draw : chosen) targets[draw.position] = tokens[draw.position];
    std::copy(targets.begin(), targets.end(), tokens.begin());
  });
}

}  // namespace ranvier::models

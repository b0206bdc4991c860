#include "models/ops/rotary.hpp"

#include "runtime/base/error.hpp"

#include <cmath>
#include <numbers>

namespace ranvier::models {
namespace {

/// Frequency after scaling, in double.
double scaled(double frequency, const RopeScaling& scaling) {
  if (scaling.kind == RopeScaling::Kind::linear) return frequency / scaling.factor;
  const double turns = scaling.original_positions * frequency / (2 * std::numbers::pi);
  if (turns < scaling.low_frequency_factor) return frequency / scaling.factor;
  if (turns > scaling.high_frequency_factor) return frequency;
  const double kept =
      (turns - scaling.low_frequency_factor) / (scaling.high_frequency_factor - scaling.low_frequency_factor);
  return (1 - kept) * frequency / scaling.factor + kept * frequency;
}

}  // namespace

RotaryFrequencies rotary_frequencies(int channels, double base, const std::optional<RopeScaling>& scaling) {
  expect(channels >= 2 && channels % 2 == 0 && channels <= RotaryFrequencies::max_channels,
         "rotary positions of heads of {} channels: an even number up to {} is possible", channels,
         RotaryFrequencies::max_channels);
  RotaryFrequencies frequencies;
  frequencies.channels = channels;
  for (int c = 0; c < channels / 2; ++c) {
    const double frequency = std::pow(base, -2.0 * c / channels);
    frequencies.of_pair[c] = static_cast<float>(scaling ? scaled(frequency, *scaling) : frequency);
  }
  return frequencies;
}

}  // namespace ranvier::models

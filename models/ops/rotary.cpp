#include "models/ops/rotary.hpp"

#include "models/ops/dispatch.hpp"

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

void rotary(runtime::StreamView stream, const RotaryShape& shape, runtime::DType dtype, void* x,
            const RotaryFrequencies& frequencies, Rotation rotation, const std::int32_t* positions,
            int first_position) {
  expect_kernel(dtype, "rotary");
  expect(
      shape.row_channels >= static_cast<std::size_t>(shape.heads) * static_cast<std::size_t>(frequencies.channels),
      "rotary of {} heads of {} channels in rows of {}", shape.heads, frequencies.channels, shape.row_channels);
  const std::size_t rows = static_cast<std::size_t>(shape.samples) * static_cast<std::size_t>(shape.positions);
  const std::size_t turned =
      rows * static_cast<std::size_t>(shape.heads) * static_cast<std::size_t>(frequencies.channels);
  const std::size_t bytes = bytes_of(2 * turned, dtype) + (positions == nullptr ? 0 : rows * sizeof(std::int32_t));
  on_device<rotary_cpu, rotary_cuda>(stream, memory_cost(runtime::WorkKind::rotary, dtype, bytes), shape, dtype, x,
                                     frequencies, rotation, positions, first_position);
}

}  // namespace ranvier::models

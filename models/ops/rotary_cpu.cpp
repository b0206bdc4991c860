#include "models/ops/rotary.hpp"

#include "models/ops/dispatch.hpp"
#include "models/ops/vector_math.hpp"
#include "runtime/base/error.hpp"
#include "runtime/host/compute_pool.hpp"

#include <array>
#include <cmath>
#include <numbers>

namespace ranvier::models {
namespace {

using simd::Floats;

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

/// Rotation of the heads at one position.
class Turn {
 public:
  Turn(const RotaryFrequencies& frequencies, Rotation rotation)
      : frequencies_(frequencies), sign_(rotation == Rotation::forward ? 1.0f : -1.0f) {}

  void set(int position) {
    if (position == position_) return;
    position_ = position;
    const auto pairs = static_cast<std::size_t>(frequencies_.channels) / 2;
    simd::for_lanes(0, pairs, [&](std::size_t c, auto count) {
      const Floats angle = static_cast<float>(position) * simd::load(frequencies_.of_pair + c, count);
      const simd::SineCosine turned = simd::sine_cosine(angle);
      simd::store(sine_.data() + c, sign_ * turned.sine, count);
      simd::store(cosine_.data() + c, turned.cosine, count);
    });
  }

  template <typename T>
  void turn(T* head) const {
    const auto pairs = static_cast<std::size_t>(frequencies_.channels) / 2;
    T* const other = head + pairs;
    simd::for_lanes(0, pairs, [&](std::size_t c, auto count) {
      const Floats a = simd::load(head + c, count), b = simd::load(other + c, count);
      const Floats sine = simd::load(sine_.data() + c, count), cosine = simd::load(cosine_.data() + c, count);
      simd::store(head + c, a * cosine - b * sine, count);
      simd::store(other + c, b * cosine + a * sine, count);
    });
  }

 private:
  const RotaryFrequencies& frequencies_;
  const float sign_;
  int position_ = -1;
  std::array<float, RotaryFrequencies::max_channels / 2> sine_, cosine_;
};

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
  if (ran_on_gpu<rotary_cuda>(stream, shape, dtype, x, frequencies, rotation, positions, first_position)) return;
  launch_typed(stream, dtype, memory_cost(runtime::WorkKind::rotary, dtype, bytes),
               [=]<typename T>(runtime::ComputePool& pool, T) {
                 const auto B = static_cast<std::size_t>(shape.samples),
                            T_ = static_cast<std::size_t>(shape.positions);
                 const auto D = static_cast<std::size_t>(frequencies.channels);
                 // Split by position, so that all samples share its angles.
                 run_pieces(pool, B * T_, [&](int thread, int threads) {
                   const auto share = runtime::share_of(B * T_, thread, threads);
                   Turn turn(frequencies, rotation);
                   for (std::size_t i = share.begin; i < share.end; ++i) {
                     const std::size_t t = i / B, row = i % B * T_ + t;
                     turn.set(positions != nullptr ? positions[row] : first_position + static_cast<int>(t));
                     T* const head = static_cast<T*>(x) + row * shape.row_channels;
                     for (std::size_t g = 0; g < static_cast<std::size_t>(shape.heads); ++g)
                       turn.turn(head + g * D);
                   }
                 });
               });
}

}  // namespace ranvier::models

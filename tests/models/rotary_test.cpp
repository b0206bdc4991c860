#include "models/ops/rotary.hpp"
#include "runtime/base/error.hpp"
#include "tests/models/device_copies.hpp"
#include "tests/models/every_device.hpp"
#include "tests/models/typed_array.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <optional>

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;

namespace {

constexpr int B = 3, T = 11, G = 5;

/// Channel c of `head`, rotated.
double turned(const TypedArray& x, std::size_t head, int D, int c, int position, float frequency) {
  const double angle = static_cast<double>(static_cast<float>(position) * frequency);
  const int half = D / 2;
  const auto at = [&](int channel) { return x[head + static_cast<std::size_t>(channel)]; };
  return c < half ? at(c) * std::cos(angle) - at(c + half) * std::sin(angle)
                  : at(c) * std::cos(angle) + at(c - half) * std::sin(angle);
}

}  // namespace

TEST_CASE("queries and keys rotate by their positions' angles, values do not, and the inverse restores them") {
  const std::vector<std::int32_t> given = [] {
    std::vector<std::int32_t> positions;
    for (int i = 0; i < B * T; ++i) positions.push_back(i * 7 % 5 * 3001);
    return positions;
  }();
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const int D : {2, 6, 32}) {
      for (const bool numbered : {false, true}) {
        CAPTURE(to_string(dtype));
        CAPTURE(D);
        CAPTURE(numbered);
        const auto row = static_cast<std::size_t>((G + 2) * D);
        const auto frequencies = rotary_frequencies(D, 500.0);
        const TypedArray x(dtype, B * T * row, 51);
        std::optional<TypedArray> first;
        on_every_device([&](runtime::StreamView stream) {
          TypedArray y = x;
          DeviceCopies at(stream);
          const RotaryShape shape{B, T, G, row};
          rotary(stream, shape, dtype, at(y), frequencies, Rotation::forward, numbered ? at(given) : nullptr, 4);
          at.fetch();
          TypedArray back = y;
          rotary(stream, shape, dtype, at(back), frequencies, Rotation::inverse, numbered ? at(given) : nullptr, 4);
          at.fetch();
          if (!first) first = y;
          CHECK(same_bits(y, *first));  // any number of threads
          const double unit = half_unit(dtype);
          std::size_t wrong = 0;
          for (std::size_t i = 0; i < x.size(); ++i) {
            const std::size_t n = i / row, head = i % row / static_cast<std::size_t>(D);
            const int c = static_cast<int>(i % static_cast<std::size_t>(D));
            wrong += !(std::abs(back[i] - x[i]) <= 8 * unit * 5 + 1e-6);
            if (head >= G) {
              wrong += y[i] != x[i];
              continue;
            }
            const int position = numbered ? given[n] : 4 + static_cast<int>(n) % T;
            const double exact = turned(x, n * row + head * static_cast<std::size_t>(D), D, c, position,
                                        frequencies.of_pair[c % (D / 2)]);
            wrong += !(std::abs(y[i] - exact) <= std::abs(exact) * unit * 1.01 + 2e-6);
          }
          CHECK(wrong == 0);
        });
      }
    }
  }
}

TEST_CASE("rotary frequencies fall geometrically, and scaling equals the papers' models") {
  const auto plain = rotary_frequencies(128, 10000);
  CHECK(plain.of_pair[0] == 1.0f);
  CHECK(plain.of_pair[32] == doctest::Approx(0.01));
  CHECK(plain.of_pair[63] == doctest::Approx(std::pow(10000.0, -126.0 / 128)));

  const auto linear = rotary_frequencies(128, 10000, RopeScaling{.factor = 4});
  for (int c = 0; c < 64; ++c) CHECK(linear.of_pair[c] == doctest::Approx(plain.of_pair[c] / 4));

  // LLaMA 3.1 8B: wavelengths above 8192 positions are divided by 8, those below 2048 kept; the 30th is between, and
  // equals transformers' _compute_llama3_parameters.
  const RopeScaling scaling{.kind = RopeScaling::Kind::llama3, .factor = 8};
  const auto before = rotary_frequencies(128, 500000), after = rotary_frequencies(128, 500000, scaling);
  for (int c = 0; c < 64; ++c) {
    const double wavelength = 2 * 3.14159265358979 / static_cast<double>(before.of_pair[c]);
    if (wavelength < 2048) CHECK(after.of_pair[c] == before.of_pair[c]);
    if (wavelength > 8192) CHECK(after.of_pair[c] == doctest::Approx(before.of_pair[c] / 8));
  }
  const double f = std::pow(500000.0, -60.0 / 128), wavelength = 2 * 3.14159265358979 / f;
  const double smooth = (8192 / wavelength - 1) / (4 - 1);
  CHECK(wavelength > 2048);
  CHECK(wavelength < 8192);
  CHECK(after.of_pair[30] == doctest::Approx((1 - smooth) * f / 8 + smooth * f));

  CHECK_THROWS_AS(static_cast<void>(rotary_frequencies(7, 10000)), Error);
  CHECK_THROWS_AS(static_cast<void>(rotary_frequencies(RotaryFrequencies::max_channels + 2, 10000)), Error);
}

#include "models/ops/swiglu.hpp"
#include "tests/models/device_copies.hpp"
#include "tests/models/every_device.hpp"
#include "tests/models/typed_array.hpp"

#include <doctest/doctest.h>

#include <cmath>

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;

namespace {

double silu(double x) { return x / (1 + std::exp(-x)); }

double slope(double x) { return (silu(x + 1e-5) - silu(x - 1e-5)) / 2e-5; }

}  // namespace

TEST_CASE("SwiGLU equals the formula, forward and backward, in every dtype and on every device") {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const std::size_t F : {1, 21, 48}) {
      CAPTURE(to_string(dtype));
      CAPTURE(F);
      on_every_device([&](runtime::StreamView stream) {
        const std::size_t N = 17;
        const TypedArray x(dtype, N * 2 * F, 21, 2.5), dy(dtype, N * F, 22);
        TypedArray y(dtype, N * F), again = dy, d = x, d_alone = x;
        DeviceCopies at(stream);
        swiglu_forward(stream, dtype, at(y), at(x), N, F);
        swiglu_backward(stream, dtype, at(again), at(d), at(again), N, F);
        swiglu_backward(stream, dtype, at(dy), at(d_alone), nullptr, N, F);
        at.fetch();
        CHECK(same_bits(y, again));
        CHECK(same_bits(d, d_alone));
        const double unit = half_unit(dtype), relative = unit + (dtype == DType::f32 ? 1.5e-6 : 6e-6);
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < N * F; ++i) {
          const std::size_t at_gate = i / F * 2 * F + i % F, at_up = at_gate + F;
          const double gate = x[at_gate], up = x[at_up];
          const auto check = [&](double value, double exact, double scale) {
            wrong += !(std::abs(value - exact) <= std::abs(exact) * relative + scale * 2e-6 + 3e-8);
          };
          check(y[i], silu(gate) * up, 0);
          check(d[at_gate], dy[i] * up * slope(gate), std::abs(dy[i] * up));
          check(d[at_up], dy[i] * silu(gate), 0);
        }
        CHECK(wrong == 0);
      });
    }
  }
}

TEST_CASE("SwiGLU of extreme gates gives NaN only for NaN") {
  std::vector<float> x, d;
  for (const float gate : {-1e4f, -100.0f, 0.0f, 100.0f, 1e4f, NAN}) {
    x.push_back(gate);
    x.push_back(2.0f);
    d.push_back(1.0f);
  }
  on_one_device([&](runtime::StreamView stream) {
    DeviceCopies at(stream);
    swiglu_backward(stream, DType::f32, at(d), at(x), at(d), d.size(), 1);
    at.fetch();
  });
  for (const std::size_t i : {0, 1, 2}) CHECK(d[i] == doctest::Approx(0));
  CHECK(d[4] == 2e4f);
  CHECK(std::isnan(d[5]));
  for (const std::size_t i : {0, 1}) CHECK(x[2 * i] == doctest::Approx(0));
  CHECK(x[4] == doctest::Approx(1));
  for (const std::size_t i : {3, 4}) CHECK(x[2 * i] == doctest::Approx(2));
  CHECK(x[9] == 1e4f);
}

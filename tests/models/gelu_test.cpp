#include "models/ops/gelu.hpp"
#include "tests/models/device_copies.hpp"
#include "tests/models/every_device.hpp"
#include "tests/models/typed_array.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;

namespace {

constexpr GeluForm all_forms[] = {GeluForm::tanh, GeluForm::erf};

double gelu(double x, GeluForm form) {
  if (form == GeluForm::erf) return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

double slope(double x, GeluForm form) { return (gelu(x + 1e-5, form) - gelu(x - 1e-5, form)) / 2e-5; }

}  // namespace

TEST_CASE("GELU is GPT-2's or BERT's, forward and backward, in every dtype and on every device") {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const GeluForm form : all_forms) {
      on_every_device([&](runtime::StreamView stream) {
        const std::size_t n = 1013;
        const TypedArray x(dtype, n, 21, 2.5), dy(dtype, n, 22);
        TypedArray y(dtype, n), again = x, d = dy, d_alone = dy;
        DeviceCopies at(stream);
        gelu_forward(stream, dtype, at(y), at(x), n, form);
        gelu_backward(stream, dtype, at(d), at(again), at(again), n, form);
        gelu_backward(stream, dtype, at(d_alone), at(x), nullptr, n, form);
        at.fetch();
        CHECK(same_bits(y, again));
        CHECK(same_bits(d, d_alone));
        const double unit = half_unit(dtype);
        const double relative = unit + (dtype == DType::f32 ? (on_gpu_here() ? 1.2e-6 : 6e-7) : 5e-6);
        for (std::size_t i = 0; i < n; ++i) {
          CAPTURE(x[i]);
          const double value = gelu(x[i], form);
          CHECK(std::abs(y[i] - value) <= std::abs(value) * relative + 1e-6 * unit + 3e-8);
          const double expected = dy[i] * slope(x[i], form);
          CHECK(std::abs(d[i] - expected) <=
                std::abs(expected) * relative + std::abs(dy[i]) * (relative - unit + 1e-6) + 3e-8);
        }
      });
    }
}

TEST_CASE("GELU keeps its relative precision in fp32, also far left of zero") {
  std::vector<float> x;
  for (float value = -6.0f; value <= 6.0f; value += 1e-3f) x.push_back(value);
  std::vector<float> y(x.size()), y_erf(x.size());
  on_one_device([&](runtime::StreamView stream) {
    DeviceCopies at(stream);
    gelu_forward(stream, DType::f32, at(y), at(std::as_const(x)), x.size());
    gelu_forward(stream, DType::f32, at(y_erf), at(std::as_const(x)), x.size(), GeluForm::erf);
    at.fetch();
  });
  double worst_erf = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double exact = 0.5 * x[i] * std::erfc(-static_cast<double>(x[i]) / std::numbers::sqrt2);
    if (exact != 0) worst_erf = worse(worst_erf, std::abs((static_cast<double>(y_erf[i]) - exact) / exact));
  }
  CHECK(worst_erf < 4e-6);  // e^(-x²/2): the same error
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    // The reference itself loses digits in 1 + tanh: use the identity with the sigmoid in long double.
    const long double v = x[i];
    const long double u = std::sqrt(2 / std::numbers::pi_v<long double>) * (v + 0.044715L * v * v * v);
    const long double exact = v / (1 + std::exp(-2 * u));
    if (exact != 0) worst = worse(worst, static_cast<double>(std::abs((y[i] - exact) / exact)));
  }
  CHECK(worst < 4e-6);  // e^-2u turns a rounding of 2u = 15 into 15 units of the result
}

TEST_CASE("GELU of extreme values gives NaN only for NaN") {
  for (const GeluForm form : all_forms) {
    std::vector<float> x{-1e4f, -100.0f, -20.0f, 0.0f, 20.0f, 100.0f, 1e4f, NAN}, d(x.size(), 1.0f);
    on_one_device([&](runtime::StreamView stream) {
      DeviceCopies at(stream);
      gelu_backward(stream, DType::f32, at(d), at(x), at(x), x.size(), form);
      at.fetch();
    });
    CHECK(x[0] == doctest::Approx(0));
    CHECK(x[1] == doctest::Approx(0));
    CHECK(x[3] == 0.0f);
    CHECK(x[6] == 1e4f);
    CHECK(std::isnan(x[7]));
    for (const std::size_t i : {0, 1, 2}) CHECK(d[i] == doctest::Approx(0));
    CHECK(d[3] == doctest::Approx(0.5));
    for (const std::size_t i : {4, 5, 6}) CHECK(d[i] == doctest::Approx(1));
    CHECK(std::isnan(d[7]));
  }
}

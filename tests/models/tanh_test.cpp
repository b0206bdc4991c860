#include "models/ops/tanh.hpp"
#include "tests/models/device_copies.hpp"
#include "tests/models/every_device.hpp"
#include "tests/models/typed_array.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <utility>
#include <vector>

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;

TEST_CASE("tanh and its gradient equal double precision, in every dtype and on every device") {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    CAPTURE(to_string(dtype));
    on_every_device([&](runtime::StreamView stream) {
      const std::size_t n = 8999;
      const TypedArray x(dtype, n, 21, 2.5), dy(dtype, n, 22);
      TypedArray y(dtype, n), d = dy;
      DeviceCopies at(stream);
      tanh_forward(stream, dtype, at(y), at(x), n);
      tanh_backward(stream, dtype, at(d), at(std::as_const(y)), n);
      at.fetch();
      const double unit = half_unit(dtype) + 2e-6;
      for (std::size_t i = 0; i < n; ++i) {
        CAPTURE(x[i]);
        CHECK(std::abs(y[i] - std::tanh(x[i])) <= unit * std::abs(std::tanh(x[i])));
        const double expected = dy[i] * (1 - y[i] * y[i]);  // with the stored y
        CHECK(std::abs(d[i] - expected) <= unit * std::abs(expected) + 1e-7 * std::abs(dy[i]) + 6e-8);
      }
    });
  }
}

TEST_CASE("tanh works in place, also for empty arrays, and saturates at one") {
  on_every_device([](runtime::StreamView stream) {
    std::vector<float> x{-1e4f, -20.0f, 0.0f, 20.0f, 1e4f, NAN}, none;
    DeviceCopies at(stream);
    float* const values = at(x);
    tanh_forward(stream, DType::f32, values, values, x.size());
    tanh_forward(stream, DType::f32, at(none), at(none), 0);
    tanh_backward(stream, DType::f32, at(none), at(none), 0);
    at.fetch();
    CHECK(x[0] == -1.0f);
    CHECK(x[1] == doctest::Approx(-1));
    CHECK(x[2] == 0.0f);
    CHECK(x[4] == 1.0f);
    CHECK(std::isnan(x[5]));
  });
}

#include "models/ops/matrix_vector.hpp"

#include "runtime/base/error.hpp"
#include "tests/models/device_copies.hpp"
#include "tests/models/every_device.hpp"
#include "tests/models/typed_array.hpp"

#include <cmath>
#include <optional>
#include <tuple>
#include <vector>

using namespace ranvier;
using namespace ranvier::models;
using runtime::DType;

namespace {

/// `bias`: may be null.
TypedArray run(runtime::StreamView stream, const TypedArray& a, const TypedArray& x, const TypedArray* bias,
               DType y_dtype) {
  const std::size_t k = x.size(), n = a.size() / k;
  TypedArray y(y_dtype, n);
  DeviceCopies at(stream);
  matrix_vector(stream, {n, k},
                {.y = at(y),
                 .y_dtype = y_dtype,
                 .a = at(a),
                 .x = at(x),
                 .dtype = a.dtype(),
                 .bias = bias != nullptr ? at(*bias) : nullptr});
  at.fetch();
  return y;
}

}  // namespace

TEST_CASE("the product of a matrix and a vector equals the definition") {
  for (const auto& [n, k] : {std::pair<std::size_t, std::size_t>{1, 1}, {5, 3}, {64, 48}, {131, 67}, {200, 768}}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (const bool has_bias : {false, true}) {
        const TypedArray a(dtype, n * k, 1), x(dtype, k, 2), bias(dtype, n, 3);
        std::vector<double> sums(n), sizes(n, 1);
        for (std::size_t i = 0; i < n; ++i) {
          sums[i] = has_bias ? bias[i] : 0;
          for (std::size_t j = 0; j < k; ++j) {
            sums[i] += a[i * k + j] * x[j];
            sizes[i] += std::abs(a[i * k + j] * x[j]);
          }
        }
        for (const DType y_dtype : {DType::f32, dtype}) {
          on_every_device([&](runtime::StreamView stream) {
            const TypedArray y = run(stream, a, x, has_bias ? &bias : nullptr, y_dtype);
            double error = 0;
            for (std::size_t i = 0; i < n; ++i) {
              error = worse(error,
                            std::abs(y[i] - sums[i]) / (sizes[i] * 1e-6 + std::abs(sums[i]) * half_unit(y_dtype)));
            }
            CAPTURE(n);
            CAPTURE(k);
            CHECK(error <= 1.01);
          });
        }
      }
    }
  }
}

TEST_CASE("the product of a matrix and a vector has the same bits on any number of threads") {
  const TypedArray a(DType::f32, 300 * 131, 1), x(DType::f32, 131, 2), bias(DType::f32, 300, 3);
  std::optional<TypedArray> one;
  on_every_device([&](runtime::StreamView stream) {
    const TypedArray y = run(stream, a, x, &bias, DType::f32);
    if (!one) one = y;
    CHECK(same_bits(y, *one));
    CHECK(same_bits(run(stream, a, x, &bias, DType::f32), *one));
  });
}

TEST_CASE("a product of a matrix and a vector in a third type is refused") {
  const auto device = runtime::make_inline_device({.threads = 1});
  const auto stream = device->make_stream("test", runtime::StreamWidth::whole);
  float y = 0, a = 0, x = 0;
  CHECK_THROWS_AS(matrix_vector(*stream, {1, 1}, {.y = &y, .y_dtype = DType::f16, .a = &a, .x = &x}), Error);
}

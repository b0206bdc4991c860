// Matrix products by their definition, in double, with the allowed rounding error.
#pragma once

#include "models/ops/matmul.hpp"
#include "tests/models/typed_array.hpp"
#include "tests/test.hpp"

namespace ranvier::models {

/// Arrays of a product in the types of c and a. `at(array)`: its address for the device, as in DeviceCopies.
template <typename At>
MatmulArrays arrays_of(At&& at, TypedArray& c, const TypedArray& a, const TypedArray& b,
                       const TypedArray* bias = nullptr, bool accumulate = false) {
  return {.c = at(c),
          .c_dtype = c.dtype(),
          .a = at(a),
          .b = at(b),
          .dtype = a.dtype(),
          .bias = bias != nullptr ? at(*bias) : nullptr,
          .accumulate = accumulate};
}

/// Expected values of `c`, and the allowed rounding error.
struct Expected {
  std::vector<double> value;
  std::vector<double> tolerance;
};

/// Elements from one stored row to the next, of each array of a product.
struct RowSteps {
  std::size_t a = 0, b = 0, c = 0;
};
inline RowSteps row_steps(const MatmulShape& s) {
  const auto step = [](std::size_t stride, std::size_t columns) { return stride != 0 ? stride : columns; };
  return {step(s.a_stride, s.transpose_a ? s.m : s.k), step(s.b_stride, s.transpose_b ? s.k : s.n),
          step(s.c_stride, s.n)};
}

/// [rows, columns] of an array whose element (r, c) is at r·row_step + c·column_step.
inline std::vector<double> in_double(const TypedArray& array, std::size_t rows, std::size_t columns,
                                     std::size_t row_step, std::size_t column_step) {
  std::vector<double> values(rows * columns);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; ++c) values[r * columns + c] = array[r * row_step + c * column_step];
  return values;
}

inline Expected plain_matmul(const MatmulShape& s, const TypedArray& a, const TypedArray& b, const TypedArray* bias,
                             const TypedArray* c, runtime::DType c_dtype) {
  Expected expected;
  const RowSteps steps = row_steps(s);
  const auto left = in_double(a, s.m, s.k, s.transpose_a ? 1 : steps.a, s.transpose_a ? steps.a : 1);
  const auto right = in_double(b, s.k, s.n, s.transpose_b ? 1 : steps.b, s.transpose_b ? steps.b : 1);
  for (std::size_t i = 0; i < s.m; ++i) {
    std::vector<double> sum(s.n), magnitude(s.n);
    for (std::size_t j = 0; j < s.n; ++j) {
      sum[j] = c != nullptr ? (*c)[i * steps.c + j] : bias != nullptr ? (*bias)[j] : 0;
      magnitude[j] = std::abs(sum[j]);
    }
    for (std::size_t p = 0; p < s.k; ++p) {
      const double factor = left[i * s.k + p];
      for (std::size_t j = 0; j < s.n; ++j) {
        const double product = factor * right[p * s.n + j];
        sum[j] += product;
        magnitude[j] += std::abs(product);
      }
    }
    for (std::size_t j = 0; j < s.n; ++j) {
      expected.value.push_back(sum[j]);
      expected.tolerance.push_back(half_unit(c_dtype) * std::abs(sum[j]) + 1e-6 * magnitude[j] + 1e-7);
    }
  }
  return expected;
}

/// The worst error as a multiple of the allowed one, in rows of n elements at a distance of `step`.
inline double worst(const TypedArray& c, const Expected& expected, std::size_t n = 1, std::size_t step = 1) {
  double worst = 0;
  for (std::size_t e = 0; e < expected.value.size(); ++e)
    worst = worse(worst, std::abs(c[e / n * step + e % n] - expected.value[e]) / expected.tolerance[e]);
  return worst;
}

/// Checks a product of each kind: plain, with bias, accumulating. `multiply(c, a, b, bias, accumulate)` computes it;
/// `bias` may be null. Gaps between rows of c must not change. `most`: allowed error in units of the tolerance.
template <typename Multiply>
void check_product(const MatmulShape& shape, runtime::DType dtype, runtime::DType c_dtype, double most,
                   Multiply multiply) {
  CAPTURE_ALL(to_string(dtype), to_string(c_dtype), shape.m, shape.n, shape.k, shape.transpose_a, shape.transpose_b,
              shape.a_stride, shape.b_stride, shape.c_stride);
  const std::size_t a_rows = shape.transpose_a ? shape.k : shape.m, b_rows = shape.transpose_b ? shape.n : shape.k;
  const auto [a_step, b_step, c_step] = row_steps(shape);
  const TypedArray a(dtype, a_rows * a_step, 1), b(dtype, b_rows * b_step, 2), bias(dtype, shape.n, 3);
  for (const int kind : {0, 1, 2}) {
    CAPTURE(kind);
    TypedArray c(c_dtype, shape.m * c_step, 4);
    const TypedArray before = c;
    const auto expected = plain_matmul(shape, a, b, kind == 1 ? &bias : nullptr, kind == 2 ? &c : nullptr, c_dtype);
    multiply(c, a, b, kind == 1 ? &bias : nullptr, kind == 2);
    CHECK(worst(c, expected, shape.n, c_step) <= most);
    bool stays = true;
    for (std::size_t i = 0; i < c.size(); ++i)
      if (i % c_step >= shape.n) stays = stays && c[i] == before[i];
    CHECK(stays);
  }
}

}  // namespace ranvier::models

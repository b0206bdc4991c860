// Matrix products by their definition, in double, with the allowed rounding error.
#pragma once

#include "models/ops/matmul.hpp"
#include "tests/models/typed_array.hpp"
#include "tests/test.hpp"

namespace ranvier::models {

/// Expected values of `c`, and the allowed rounding error.
struct Expected {
  std::vector<double> value;
  std::vector<double> tolerance;
};

inline std::size_t or_tight(std::size_t stride, std::size_t row) { return stride != 0 ? stride : row; }

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
  const std::size_t a_stride = or_tight(s.a_stride, s.transpose_a ? s.m : s.k);
  const std::size_t b_stride = or_tight(s.b_stride, s.transpose_b ? s.k : s.n);
  const auto left = in_double(a, s.m, s.k, s.transpose_a ? 1 : a_stride, s.transpose_a ? a_stride : 1);
  const auto right = in_double(b, s.k, s.n, s.transpose_b ? 1 : b_stride, s.transpose_b ? b_stride : 1);
  for (std::size_t i = 0; i < s.m; ++i) {
    std::vector<double> sum(s.n), magnitude(s.n);
    for (std::size_t j = 0; j < s.n; ++j) {
      sum[j] = c != nullptr ? (*c)[i * or_tight(s.c_stride, s.n) + j] : bias != nullptr ? (*bias)[j] : 0;
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

/// The worst error as a multiple of the allowed one.
inline double worst(const TypedArray& c, const Expected& expected) {
  double worst = 0;
  for (std::size_t i = 0; i < c.size(); ++i)
    worst = worse(worst, std::abs(c[i] - expected.value[i]) / expected.tolerance[i]);
  return worst;
}

}  // namespace ranvier::models

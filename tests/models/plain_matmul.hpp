// Matrix products by their definition, in double, with what rounding may change.
#pragma once

#include "models/ops/matmul.hpp"
#include "tests/models/typed_array.hpp"

#include <cmath>
#include <cstddef>
#include <vector>

namespace ranvier::models {

/// Where `c` must end, and how far from there rounding may take it.
struct Expected {
  std::vector<double> value;
  std::vector<double> tolerance;
};

inline std::size_t or_tight(std::size_t stride, std::size_t row) { return stride != 0 ? stride : row; }

inline Expected plain_matmul(const MatmulShape& s, const TypedArray& a, const TypedArray& b, const TypedArray* bias,
                             const TypedArray* c, runtime::DType c_dtype) {
  Expected expected;
  const std::size_t a_stride = or_tight(s.a_stride, s.transpose_a ? s.m : s.k);
  const std::size_t b_stride = or_tight(s.b_stride, s.transpose_b ? s.k : s.n);
  for (std::size_t i = 0; i < s.m; ++i)
    for (std::size_t j = 0; j < s.n; ++j) {
      double sum = c != nullptr ? (*c)[i * or_tight(s.c_stride, s.n) + j] : bias != nullptr ? (*bias)[j] : 0;
      double magnitude = std::abs(sum);
      for (std::size_t p = 0; p < s.k; ++p) {
        const double product = a[s.transpose_a ? p * a_stride + i : i * a_stride + p] *
                               b[s.transpose_b ? j * b_stride + p : p * b_stride + j];
        sum += product;
        magnitude += std::abs(product);
      }
      expected.value.push_back(sum);
      expected.tolerance.push_back(half_unit(c_dtype) * std::abs(sum) + 1e-6 * magnitude + 1e-7);
    }
  return expected;
}

/// The worst error as a multiple of what is allowed.
inline double worst(const TypedArray& c, const Expected& expected) {
  double worst = 0;
  for (std::size_t i = 0; i < c.size(); ++i)
    worst = worse(worst, std::abs(c[i] - expected.value[i]) / expected.tolerance[i]);
  return worst;
}

}  // namespace ranvier::models

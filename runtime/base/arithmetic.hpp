// Rounding of counts, and the median. Any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <vector>

namespace ranvier::runtime {

/// a / b rounded up; neither is negative.
template <class Count>
[[nodiscard]] constexpr Count ceil_divide(Count a, std::type_identity_t<Count> b) {
  return (a + b - 1) / b;
}

/// Smallest multiple that is at least n, which is not negative.
template <class Count>
[[nodiscard]] constexpr Count round_up(Count n, std::type_identity_t<Count> multiple) {
  return ceil_divide(n, multiple) * multiple;
}

/// Median of at least one value; the larger of two middle values.
[[nodiscard]] inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Median of at least one value; the smaller of two middle values.
[[nodiscard]] inline double lower_median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace ranvier::runtime

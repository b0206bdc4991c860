// Number of cases that a test runs: by default enough to find a mistake soon, all with RANVIER_LONG=1 in the
// environment. Fewer with a sanitizer, which runs the same code many times slower.
#pragma once

#include "tests/seeds.hpp"

#include <cmath>
#include <cstdlib>

namespace ranvier::tests {

inline bool long_run() { return std::getenv("RANVIER_LONG") != nullptr; }

/// The number for the current effort.
inline int effort(int usual, int all, int under_sanitizers) {
  return long_run() ? all : test::sanitized ? under_sanitizers : usual;
}

/// Selects combinations of nested loops: 1 of N, evenly spread and not periodic with any of the loops.
class Share {
 public:
  explicit Share(int one_of) noexcept : one_of_(long_run() ? 1 : one_of) {}
  /// ThreadSanitizer gets a third of the cases of other sanitizers.
  Share(int one_of, int one_of_under_sanitizers)
      : Share(test::finds_races ? 3 * one_of_under_sanitizers
              : test::sanitized ? one_of_under_sanitizers
                                : one_of) {}

  /// Whether the next combination is selected.
  [[nodiscard]] bool takes() {
    constexpr double golden_ratio = 0.6180339887498949;
    const double place = golden_ratio * number_++;
    return (place - std::floor(place)) * one_of_ < 1;
  }

 private:
  int one_of_;
  int number_ = 0;
};

}  // namespace ranvier::tests

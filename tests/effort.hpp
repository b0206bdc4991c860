// How much a test tries of what it could: by default what shows a mistake soon, everything with RANVIER_LONG=1 in the
// environment, and less where a sanitizer watches the same code many times slower.
#pragma once

#include "tests/seeds.hpp"

#include <cmath>
#include <cstdlib>

namespace ranvier::tests {

inline bool long_run() { return std::getenv("RANVIER_LONG") != nullptr; }

/// How many of something.
inline int effort(int usual, int all, int under_sanitizers) {
  return long_run() ? all : test::sanitized ? under_sanitizers : usual;
}

/// Which of the combinations of nested loops: one of so many, spread evenly and in step with none of the loops.
class Share {
 public:
  explicit Share(int one_of) noexcept : one_of_(long_run() ? 1 : one_of) {}
  Share(int one_of, int one_of_under_sanitizers) : Share(test::sanitized ? one_of_under_sanitizers : one_of) {}

  /// Whether the next combination is one of them.
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

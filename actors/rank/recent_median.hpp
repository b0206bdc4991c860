// Median of the last numbers of a series. One thread at a time.
#pragma once

#include "runtime/base/arithmetic.hpp"

#include <cstddef>
#include <vector>

namespace ranvier::actors {

class RecentMedian {
 public:
  static constexpr std::size_t window = 64;  ///< usual length in numbers

  explicit RecentMedian(std::size_t most = window) noexcept : most_(most) {}

  void add(double number) {
    if (numbers_.size() == most_) numbers_.erase(numbers_.begin());
    numbers_.push_back(number);
  }
  /// Oldest first.
  [[nodiscard]] const std::vector<double>& numbers() const noexcept { return numbers_; }
  /// The upper median if the count is even; 0 if there are no numbers.
  [[nodiscard]] double value() const { return numbers_.empty() ? 0 : runtime::median(numbers_); }

 private:
  std::size_t most_;
  std::vector<double> numbers_;
};

}  // namespace ranvier::actors

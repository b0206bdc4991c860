// Median of the last numbers of a series. One thread at a time.
#pragma once

#include <cstddef>
#include <vector>

namespace ranvier::actors {

class RecentMedian {
 public:
  static constexpr std::size_t window = 64;  ///< length in numbers

  void add(double number);
  /// Oldest first.
  [[nodiscard]] const std::vector<double>& numbers() const noexcept { return numbers_; }
  /// The upper median if the count is even; 0 if there are no numbers.
  [[nodiscard]] double value() const;

 private:
  std::vector<double> numbers_;
};

}  // namespace ranvier::actors

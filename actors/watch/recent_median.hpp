// The median of the last numbers of a series: what is usual, whatever single ones were. One thread at a time.
#pragma once

#include <cstddef>
#include <vector>

namespace ranvier::actors {

class RecentMedian {
 public:
  static constexpr std::size_t window = 64;  ///< numbers that count

  void add(double number);
  /// The oldest first.
  [[nodiscard]] const std::vector<double>& numbers() const noexcept { return numbers_; }
  /// Of an even number the upper one of both in the middle; 0 where there is none.
  [[nodiscard]] double value() const;

 private:
  std::vector<double> numbers_;
};

}  // namespace ranvier::actors

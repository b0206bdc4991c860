#include "actors/rank/recent_median.hpp"

#include <algorithm>

namespace ranvier::actors {

void RecentMedian::add(double number) {
  if (numbers_.size() == window) numbers_.erase(numbers_.begin());
  numbers_.push_back(number);
}

double RecentMedian::value() const {
  if (numbers_.empty()) return 0;
  std::vector<double> sorted = numbers_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

}  // namespace ranvier::actors

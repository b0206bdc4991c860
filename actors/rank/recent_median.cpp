#include "actors/rank/recent_median.hpp"

#include "runtime/base/arithmetic.hpp"

namespace ranvier::actors {

void RecentMedian::add(double number) {
  if (numbers_.size() == window) numbers_.erase(numbers_.begin());
  numbers_.push_back(number);
}

double RecentMedian::value() const { return numbers_.empty() ? 0 : runtime::median(numbers_); }

}  // namespace ranvier::actors

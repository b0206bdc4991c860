#include "apps/view/series.hpp"

#include "runtime/base/arithmetic.hpp"
#include "runtime/base/error.hpp"

#include <algorithm>
#include <cmath>

namespace ranvier::apps {

void BinnedValue::join(const BinnedValue& other) {
  if (other.count == 0) return;
  if (count == 0) {
    *this = other;
    return;
  }
  const double all = static_cast<double>(count) + static_cast<double>(other.count);
  mean += (other.mean - mean) * (static_cast<double>(other.count) / all);
  least = std::min(least, other.least);
  most = std::max(most, other.most);
  count += other.count;
}

void StepBin::join(const StepBin& next) {
  last = std::max(last, next.last);
  for (std::size_t i = 0; i < figure_count; ++i) values[i].join(next.values[i]);
}

Series::Series(std::size_t most) : max_(most) { expect(most >= 2, "a series of {} points", most); }

double Series::add(std::int64_t step, const std::array<double, figure_count>& values) {
  double forgotten = 0;
  while (!points_.empty() && points_.back().last >= step) {
    StepBin& last = points_.back();
    const BinnedValue& seconds = last[Metric::seconds];
    const double all = seconds.mean * seconds.count;
    if (last.first >= step) {
      forgotten += all;
      points_.pop_back();
      continue;
    }
    // A bin does not know the values of single steps, so it stays unchanged.
    const auto steps = static_cast<double>(last.last - last.first + 1);
    forgotten += all * static_cast<double>(last.last - step + 1) / steps;
    last.last = step - 1;
  }
  StepBin point{.first = step, .last = step, .values = {}};
  for (std::size_t i = 0; i < figure_count; ++i) {
    const auto value = static_cast<float>(values[i]);
    if (std::isfinite(values[i]) && std::isfinite(value)) point.values[i] = {values[i], value, value, 1};
  }
  if (!points_.empty() && step - points_.back().first < stride_) {
    points_.back().join(point);
    return forgotten;
  }
  if (points_.size() == max_) {
    stride_ *= 2;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < points_.size(); i += 2, ++kept) {
      StepBin joined = points_[i];
      if (i + 1 < points_.size()) joined.join(points_[i + 1]);
      points_[kept] = joined;
    }
    points_.resize(kept);
  }
  points_.push_back(point);
  return forgotten;
}

std::vector<StepBin> Series::between(std::int64_t first, std::int64_t last, std::size_t most) const {
  const auto begin =
      std::ranges::partition_point(points_, [first](const StepBin& point) { return point.last < first; });
  const auto end =
      std::partition_point(begin, points_.end(), [last](const StepBin& point) { return point.first <= last; });
  const auto there = static_cast<std::size_t>(end - begin);
  if (there == 0 || most == 0) return {};
  const std::size_t together = runtime::ceil_divide(there, most);
  std::vector<StepBin> result;
  for (std::size_t i = 0; i < there; ++i) {
    const StepBin& point = begin[static_cast<std::ptrdiff_t>(i)];
    if (i % together == 0) {
      result.push_back(point);
    } else {
      result.back().join(point);
    }
  }
  return result;
}

}  // namespace ranvier::apps

#include "models/core/filtered_samples.hpp"

#include <algorithm>

namespace ranvier::models {

void FilteredSamples::leave_out(const SampleRange& samples) {
  if (samples.count == 0) return;
  left_out_.push_back(samples);
  std::sort(left_out_.begin(), left_out_.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  std::vector<SampleRange> joined;
  for (const SampleRange& range : left_out_) {
    if (joined.empty() || joined.back().begin + joined.back().count < range.begin) {
      joined.push_back(range);
    } else {
      SampleRange& last = joined.back();
      last.count = std::max(last.begin + last.count, range.begin + range.count) - last.begin;
    }
  }
  left_out_ = std::move(joined);
}

std::int64_t FilteredSamples::number(std::int64_t n) const {
  for (const SampleRange& gap : left_out_) {
    if (n < gap.begin) break;
    n += gap.count;
  }
  return n;
}

}  // namespace ranvier::models

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

std::vector<SampleRange> FilteredSamples::numbers(std::int64_t first, std::int64_t count) const {
  std::vector<SampleRange> ranges;
  std::int64_t number = first;
  for (const SampleRange& gap : left_out_) {
    if (count == 0) break;
    if (number < gap.begin) {
      const std::int64_t before = std::min(count, gap.begin - number);
      ranges.push_back({number, before});
      count -= before;
      number += before;
    }
    number += gap.count;
  }
  if (count > 0) ranges.push_back({number, count});
  return ranges;
}

std::int64_t FilteredSamples::losses(std::int64_t first, std::int64_t count) const {
  std::int64_t sum = 0;
  for (const SampleRange& range : numbers(first, count)) sum += all_->losses(range.begin, range.count);
  return sum;
}

void FilteredSamples::read_inputs(std::int64_t first, int count, std::byte* to) const {
  for (const SampleRange& range : numbers(first, count)) {
    all_->read_inputs(range.begin, static_cast<int>(range.count), to);
    to += static_cast<std::size_t>(range.count) * all_->input_bytes();
  }
}

void FilteredSamples::read_targets(std::int64_t first, int count, std::byte* to) const {
  for (const SampleRange& range : numbers(first, count)) {
    all_->read_targets(range.begin, static_cast<int>(range.count), to);
    to += static_cast<std::size_t>(range.count) * all_->target_bytes();
  }
}

void FilteredSamples::read_document_starts(std::int64_t first, int count, std::int32_t* to) const {
  for (const SampleRange& range : numbers(first, count)) {
    all_->read_document_starts(range.begin, static_cast<int>(range.count), to);
    to += range.count * static_cast<std::int64_t>(document_positions());
  }
}

void FilteredSamples::will_read(std::int64_t first, int count) const {
  for (const SampleRange& range : numbers(first, count)) {
    all_->will_read(range.begin, static_cast<int>(range.count));
  }
}

}  // namespace ranvier::models

// Filters samples of another source. Remaining samples are numbered without gaps, so every step has the same size for
// any batch. Reads from any thread, unless samples are being removed.
#pragma once

#include "models/core/sample_source.hpp"

#include <vector>

namespace ranvier::models {

/// Consecutive samples.
struct SampleRange {
  std::int64_t begin = 0;
  std::int64_t count = 0;

  friend bool operator==(const SampleRange&, const SampleRange&) = default;
};

class FilteredSamples final : public SampleSource {
 public:
  /// `all` must outlive it.
  explicit FilteredSamples(const SampleSource& all) : all_(&all) {}

  /// Removes samples with these numbers in `all`; some may be removed already. Earlier samples keep their numbers.
  void leave_out(const SampleRange& samples);
  /// Removed samples, in order; ranges do not touch.
  [[nodiscard]] const std::vector<SampleRange>& left_out() const noexcept { return left_out_; }
  /// Numbers in `all` of the remaining samples [first, first + count), in order.
  [[nodiscard]] std::vector<SampleRange> numbers(std::int64_t first, std::int64_t count) const;

  [[nodiscard]] std::int64_t samples() const override { return all_->samples(); }
  [[nodiscard]] std::size_t input_bytes() const override { return all_->input_bytes(); }
  [[nodiscard]] std::size_t target_bytes() const override { return all_->target_bytes(); }
  [[nodiscard]] std::int64_t losses_per_sample() const override { return all_->losses_per_sample(); }
  [[nodiscard]] std::int64_t losses(std::int64_t first, std::int64_t count) const override;
  [[nodiscard]] std::size_t document_positions() const override { return all_->document_positions(); }
  [[nodiscard]] std::int64_t padding(std::int64_t n) const override {
    return all_->padding(numbers(n, 1).front().begin);
  }
  void read_inputs(std::int64_t first, int count, std::byte* to) const override;
  void read_targets(std::int64_t first, int count, std::byte* to) const override;
  void read_document_starts(std::int64_t first, int count, std::int32_t* to) const override;
  void will_read(std::int64_t first, int count) const override;

 private:
  const SampleSource* all_;
  std::vector<SampleRange> left_out_;
};

}  // namespace ranvier::models

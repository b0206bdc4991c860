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
  /// Number in `all` of remaining sample n.
  [[nodiscard]] std::int64_t number(std::int64_t n) const;

  [[nodiscard]] std::int64_t samples() const override { return all_->samples(); }
  [[nodiscard]] std::size_t input_bytes() const override { return all_->input_bytes(); }
  [[nodiscard]] std::size_t target_bytes() const override { return all_->target_bytes(); }
  [[nodiscard]] std::int64_t losses_per_sample() const override { return all_->losses_per_sample(); }
  [[nodiscard]] std::int64_t losses_of(std::int64_t n) const override { return all_->losses_of(number(n)); }
  [[nodiscard]] std::size_t document_positions() const override { return all_->document_positions(); }
  [[nodiscard]] std::int64_t padding(std::int64_t n) const override { return all_->padding(number(n)); }
  void read_input(std::int64_t n, std::byte* to) const override { all_->read_input(number(n), to); }
  void read_target(std::int64_t n, std::byte* to) const override { all_->read_target(number(n), to); }
  void read_starts(std::int64_t n, std::int32_t* to) const override { all_->read_starts(number(n), to); }
  void prefetch(std::int64_t n) const override { all_->prefetch(number(n)); }

 private:
  const SampleSource* all_;
  std::vector<SampleRange> left_out_;
};

}  // namespace ranvier::models

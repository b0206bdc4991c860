// Part of a set of tokenized texts as samples of T positions, in order or shuffled. Any thread.
#pragma once

#include "models/core/sample_source.hpp"
#include "models/text/sample_order.hpp"
#include "runtime/base/error.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

namespace ranvier::models {

/// A Set has samples(), sequence_length() (T), losses(sample), filled(sample), the positions that are not padding, and
/// read(sample, to), which writes int32 [T]. A sample is one document, unless read_starts() is overridden; its
/// padding positions attend to no other position and are attended to by none.
template <typename Set>
class SubsetSource : public TokenSamples {
 public:
  /// Provides samples [begin, end); without a seed in order.
  SubsetSource(std::shared_ptr<const Set> set, std::int64_t begin, std::int64_t end,
               std::optional<std::uint64_t> shuffle_seed)
      : TokenSamples(set->sequence_length()), set_(std::move(set)), begin_(begin), samples_(end - begin) {
    expect(begin >= 0 && begin < end && end <= set_->samples(), "samples are out of range: {} to {} of {}", begin,
           end, set_->samples());
    if (shuffle_seed) order_.emplace(samples_, *shuffle_seed);
  }

  [[nodiscard]] std::int64_t samples() const override { return samples_; }
  [[nodiscard]] std::int64_t losses_of(std::int64_t n) const override { return set_->losses(index(n)); }
  [[nodiscard]] std::size_t document_positions() const override { return static_cast<std::size_t>(positions()); }
  [[nodiscard]] std::int64_t padding(std::int64_t n) const override { return positions() - set_->filled(index(n)); }
  void read_input(std::int64_t n, std::byte* to) const override {
    set_->read(index(n), reinterpret_cast<std::int32_t*>(to));
  }
  void read_starts(std::int64_t n, std::int32_t* to) const override {
    const std::int64_t filled = set_->filled(index(n));
    std::fill(to, to + filled, 0);
    std::iota(to + filled, to + positions(), static_cast<std::int32_t>(filled));
  }

 protected:
  [[nodiscard]] const Set& set() const noexcept { return *set_; }
  /// Sample n's number in the set.
  [[nodiscard]] std::int64_t index(std::int64_t n) const { return begin_ + (order_ ? (*order_)(n) : n % samples_); }

 private:
  std::shared_ptr<const Set> set_;
  std::int64_t begin_, samples_;
  std::optional<SampleOrder> order_;
};

}  // namespace ranvier::models

// Keys that each position attends to, on the CPU: causality, window and bounds of attention.hpp in one place.
#pragma once

#include "models/ops/attention.hpp"
#include "runtime/base/arithmetic.hpp"
#include "runtime/base/error.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace ranvier::models {

/// Number of query-key pairs of one head and sample, for `queries` positions after `past` ones. Causality hides later
/// keys, and the window earlier ones.
[[nodiscard]] inline double causal_pairs(std::size_t past, std::size_t queries, std::size_t window) {
  const auto up_to = [](std::size_t n) { return static_cast<double>(n) * static_cast<double>(n + 1) / 2; };
  const std::size_t end = past + queries;
  if (window == 0) window = end;
  const std::size_t growing = std::min(end, window), whole = std::min(past, growing);  // before the window moves
  return up_to(growing) - up_to(whole) +
         static_cast<double>(window) * static_cast<double>(end - std::max(past, growing));
}

/// Number of pairs for attention over complete samples. Document masks are ignored: only the device knows them.
[[nodiscard]] inline double pairs_of(const AttentionShape& shape) {
  const auto T = static_cast<std::size_t>(shape.positions);
  if (!shape.causal) return static_cast<double>(T) * static_cast<double>(T);
  return causal_pairs(0, T, static_cast<std::size_t>(shape.window));
}

/// Keys visible to the positions of a sample: first(i) … end(i)-1. Neither decreases along the sample.
class VisibleKeys {
 public:
  VisibleKeys(const AttentionShape& shape, const AttentionBounds& bounds, std::size_t sample)
      : T_(static_cast<std::size_t>(shape.positions)),
        window_(static_cast<std::size_t>(shape.window)),
        causal_(shape.causal),
        first_(bounds.first_key == nullptr ? nullptr : bounds.first_key + sample * T_),
        end_(bounds.end_key == nullptr ? nullptr : bounds.end_key + sample * T_) {}

  /// Whether every position attends to itself and all earlier ones.
  [[nodiscard]] bool plain() const { return causal_ && window_ == 0 && first_ == nullptr && end_ == nullptr; }
  [[nodiscard]] bool causal() const { return causal_; }

  [[nodiscard]] std::size_t first(std::size_t i) const {
    const std::size_t first = window_ > 0 && i + 1 > window_ ? i + 1 - window_ : 0;
    return first_ == nullptr ? first : std::max(first, static_cast<std::size_t>(first_[i]));
  }
  [[nodiscard]] std::size_t end(std::size_t i) const {
    const std::size_t end = causal_ ? i + 1 : T_;
    return end_ == nullptr ? end : std::min(end, static_cast<std::size_t>(end_[i]));
  }

  /// Keys visible to at least one of `queries` positions starting at i0; `begin` is the start of a block.
  struct Keys {
    std::size_t begin, end;

    [[nodiscard]] std::size_t blocks(std::size_t block) const { return runtime::ceil_divide(end - begin, block); }
  };
  [[nodiscard]] Keys keys_of(std::size_t i0, std::size_t queries, std::size_t block) const {
    return {first(i0) / block * block, end(i0 + queries - 1)};
  }

 private:
  std::size_t T_, window_;
  bool causal_;
  const std::int32_t* first_;
  const std::int32_t* end_;
};

/// Throws unless the bounds satisfy attention.hpp's contract; callers rely on their order.
inline void check_bounds(const AttentionShape& shape, const AttentionBounds& bounds) {
  if (bounds.first_key == nullptr && bounds.end_key == nullptr) return;
  const auto T = static_cast<std::size_t>(shape.positions);
  for (std::size_t b = 0; b < static_cast<std::size_t>(shape.samples); ++b) {
    std::int32_t first = 0, end = 0;
    for (std::size_t i = 0; i < T; ++i) {
      const std::int32_t i_first = bounds.first_key != nullptr ? bounds.first_key[b * T + i] : 0;
      const std::int32_t i_end = bounds.end_key != nullptr ? bounds.end_key[b * T + i] : shape.positions;
      const auto own = static_cast<std::int32_t>(i);
      expect(i_first >= first && i_first <= own && i_end >= end && i_end > own && i_end <= shape.positions,
             "position {} of sample {} sees keys {} to {} of {}: itself has to be among them, and bounds may not "
             "decrease",
             i, b, i_first, i_end, T);
      first = i_first, end = i_end;
    }
  }
}

}  // namespace ranvier::models

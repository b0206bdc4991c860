// A set of a unit's elements: all of them, or some ranges. An array of these elements has no gaps. Pure data; any
// thread.
//
//   ElementSet({{256, 512}, {1024, 256}})   elements 256 to 767 and 1024 to 1279; before(1100) == 588
#pragma once

#include "collectives/plans/plan.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace ranvier::actors {

class ElementSet {
 public:
  /// All elements.
  ElementSet() = default;
  /// `ranges`: ascending, disjoint, not empty.
  explicit ElementSet(std::vector<collectives::Range> ranges) : ranges_(std::move(ranges)) {}

  [[nodiscard]] bool has_all() const noexcept { return !ranges_; }
  /// Number of elements below `element`: its position in an array that starts with the set's first element.
  [[nodiscard]] std::size_t before(std::size_t element) const noexcept {
    if (has_all()) return element;
    std::size_t count = 0;
    for (const collectives::Range& range : *ranges_) count += range.common({0, element}).count;
    return count;
  }
  /// Number of elements in a range.
  [[nodiscard]] std::size_t count(const collectives::Range& range) const noexcept {
    return before(range.begin + range.count) - before(range.begin);
  }
  [[nodiscard]] bool contains(const collectives::Range& range) const noexcept {
    return count(range) == range.count;
  }
  /// The set's elements in a range, as ascending ranges.
  [[nodiscard]] std::vector<collectives::Range> in(const collectives::Range& range) const {
    if (has_all()) return range.count > 0 ? std::vector{range} : std::vector<collectives::Range>{};
    std::vector<collectives::Range> parts;
    for (const collectives::Range& each : *ranges_)
      if (const collectives::Range part = each.common(range); part.count > 0) parts.push_back(part);
    return parts;
  }
  /// Largest number of elements in one of the ranges [0, part), [part, 2·part), …
  [[nodiscard]] std::size_t most_in(std::size_t part) const {
    if (has_all() || part == 0) return part;
    std::size_t most = 0;
    for (std::size_t begin = 0; !ranges_->empty() && begin < ranges_->back().begin + ranges_->back().count;
         begin += part)
      most = std::max(most, count({begin, part}));
    return most;
  }

  friend bool operator==(const ElementSet&, const ElementSet&) = default;

 private:
  std::optional<std::vector<collectives::Range>> ranges_;
};

}  // namespace ranvier::actors
